// Read once for all files of io (a precompiled header): most of them read or write ONNX models.
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "standard.hpp"
