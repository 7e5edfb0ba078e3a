// Catch2 3 under the name of Catch2 2's header; on the include path only where Catch2 3 is
// installed.
#pragma once

#include <catch2/catch_all.hpp>

using Catch::Approx;
