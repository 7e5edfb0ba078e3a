#include "autopar/npz.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/npy.hpp"

namespace autopar::npz_test {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "autopar-npz-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  fs::path path;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Runs Python with numpy; false where it fails.
bool python(const std::string& code, const Folder& folder) {
  const char* interpreter = std::getenv("AUTOPAR_PYTHON");
  const std::string fallback = AUTOPAR_SOURCE "/.deps/venv/bin/python";
  write(folder.file("code.py"), "import numpy as np, ml_dtypes, sys\n" + code);
  const std::string command = "cd '" + folder.path.string() + "' && '" +
                              (interpreter != nullptr ? interpreter : fallback) + "' code.py";
  return std::system(command.c_str()) == 0;
}

Tensor ramp(DType dtype, const Shape& shape) {
  Tensor tensor{dtype, shape, {}};
  tensor.bytes.resize(static_cast<std::size_t>(element_count(shape) * size_of(dtype)));
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    tensor.bytes[i] = static_cast<char>(dtype == DType::kBool ? i % 2 : i % 60);
  }
  return tensor;
}

std::map<std::string, Tensor> all_types() {
  std::map<std::string, Tensor> arrays;
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                      DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kInt32,
                      DType::kUInt32, DType::kInt64, DType::kUInt64, DType::kBool}) {
    arrays[std::string("in.") + name_of(dtype)] = ramp(dtype, {2, 3});
  }
  arrays["scalar"] = ramp(DType::kInt64, {});
  arrays["vector"] = ramp(DType::kFloat32, {5});
  arrays["empty"] = ramp(DType::kFloat32, {0, 4});
  return arrays;
}

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = std::string("\x93NUMPY") + version + '\0';
  bytes += static_cast<char>(header.size());
  bytes += std::string(version == 1 ? 1 : 3, '\0');
  return bytes + header + data;
}

TEST_CASE("npz: what is written is read back, with the same bytes each time", "[npz]") {
  const Folder folder;
  const auto arrays = all_types();
  REQUIRE(write_npz(folder.file("a.npz"), arrays));
  REQUIRE(write_npz(folder.file("b.npz"), arrays));
  CHECK(contents(folder.file("a.npz")) == contents(folder.file("b.npz")));
  const auto read = read_npz(folder.file("a.npz"));
  REQUIRE(read);
  CHECK(*read == arrays);
  REQUIRE(write_npz(folder.file("a.npz"), {{"x", ramp(DType::kInt8, {2})}}));  // overwrites
  REQUIRE(read_npz(folder.file("a.npz")));
  CHECK(read_npz(folder.file("a.npz"))->size() == 1);
  CHECK(!write_npz(folder.file("none.npz"), {}));
  REQUIRE(write_npz(folder.file("new/folder/a.npz"), arrays));
  CHECK(!write_npz(folder.file("a.npz/b.npz"), arrays));
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(!write_npz(folder.file("pipe"), arrays));
}

TEST_CASE("npz: numpy reads what is written", "[npz]") {
  const Folder folder;
  REQUIRE(write_npz(folder.file("a.npz"), all_types()));
  CHECK(python(R"(
a = np.load('a.npz')
assert len(a.files) == 16, a.files
for t in 'float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool'.split():
    x = a['in.' + t]
    assert x.dtype == np.dtype(t) and x.shape == (2, 3), (t, x)
    if t == 'int32': assert x.tobytes() == bytes(range(24))
assert a['in.bfloat16'].view(ml_dtypes.bfloat16).shape == (2, 3)
assert a['scalar'].shape == () and a['vector'].shape == (5,) and a['empty'].shape == (0, 4)
)",
               folder));
}

TEST_CASE("npz: numpy's arrays are read", "[npz]") {
  const Folder folder;
  REQUIRE(python(R"(
x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
arrays = {'c': x, 'fortran': np.asfortranarray(x), 'big': x.astype('>f4'), 'f64': x.astype(np.float64),
          'bf16': x.astype(ml_dtypes.bfloat16), 'flag': x > 5, 'scalar': np.int64(7), 'none': x[:0]}
np.savez('stored.npz', **arrays)
np.savez_compressed('deflated.npz', **arrays)
np.savez('text.npz', t=np.array(['a']))
np.savez('record.npz', r=np.zeros(2, dtype=[('a', 'f4')]))
)",
                 folder));
  const auto stored = read_npz(folder.file("stored.npz"));
  const auto deflated = read_npz(folder.file("deflated.npz"));
  REQUIRE(stored);
  REQUIRE(deflated);
  CHECK(*stored == *deflated);
  REQUIRE(stored->size() == 8);
  const Tensor& c = stored->at("c");
  CHECK(c.dtype == DType::kFloat32);
  CHECK(c.shape == Shape{2, 3, 4});
  CHECK(reinterpret_cast<const float*>(c.bytes.data())[23] == 23);
  CHECK(stored->at("fortran") == c);
  CHECK(stored->at("big") == c);
  CHECK(stored->at("bf16").dtype == DType::kBFloat16);
  CHECK(stored->at("bf16").bytes.substr(0, 4) == std::string("\0\0\x80\x3f", 4));
  CHECK(stored->at("flag").dtype == DType::kBool);
  CHECK(stored->at("scalar") == int64_tensor({}, {7}));
  CHECK(stored->at("none").shape == Shape{0, 3, 4});
  for (const char* name : {"text.npz", "record.npz"}) {
    const auto bad = read_npz(folder.file(name));
    REQUIRE(!bad);
    CHECK(bad.error().code == ErrorCode::kInput);
    CHECK(bad.error().message.find("not supported") != std::string::npos);
  }
}

TEST_CASE("npz: damaged files are refused with a message", "[npz]") {
  const Folder folder;
  REQUIRE(!read_npz(folder.file("none.npz")));
  CHECK(read_npz(folder.file("none.npz")).error().message.find("none.npz") != std::string::npos);
  REQUIRE(write_npz(folder.file("good.npz"), {{"x", ramp(DType::kFloat32, {40})}}));
  const std::string good = contents(folder.file("good.npz"));
  for (std::size_t size = 0; size < good.size(); size += 7) {
    write(folder.file("short.npz"), good.substr(0, size));
    CHECK(!read_npz(folder.file("short.npz")));
  }
  std::size_t refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    write(folder.file("bad.npz"), bad);
    refused += read_npz(folder.file("bad.npz")) ? 0 : 1;  // must not crash; a few fields are unused
  }
  CHECK(refused > good.size() / 2);
  write(folder.file("text.npz"), "not a zip");
  CHECK(!read_npz(folder.file("text.npz")));
}

TEST_CASE("npy: headers", "[npz]") {
  const std::string data(24, 'x');
  const auto shape_of = [&](const std::string& header, char version = 1) {
    const auto tensor = parse_npy(npy(header, data, version));
    return tensor ? to_text(tensor->shape) : "error: " + tensor.error().message;
  };
  CHECK(shape_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }") == "[2,3]");
  CHECK(shape_of("{\"shape\":(6,),\"descr\":\"<i4\",\"fortran_order\":True}\n") == "[6]");
  CHECK(shape_of("{'descr': '|u1', 'fortran_order': False, 'shape': (24,), }", 2) == "[24]");
  for (const char* bad :
       {"", "{", "{}", "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (8,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}"}) {
    CAPTURE(bad);
    CHECK(shape_of(bad).substr(0, 6) == "error:");
  }
  CHECK(!parse_npy("\x93NUMPY"));
  CHECK(!parse_npy(npy("{}", data, 9)));
}

}  // namespace
}  // namespace autopar::npz_test
