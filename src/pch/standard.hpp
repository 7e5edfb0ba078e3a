// Read once for all files of core, exec and planning (a precompiled header): what most of them
// include. Each file includes what it needs itself as well, so that it compiles without
// (-Db_pch=false).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
