#include "io/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>

namespace autopar {

namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window; 16: a gzip header
constexpr std::size_t kStep = std::size_t{1} << 20;

}  // namespace

Result<std::string> unzipped(std::string bytes, const std::string& path) {
  const bool zipped = bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
  if (!zipped) return bytes;
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return input_error(path + ": cannot unzip");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, inflateEnd);
  std::string text, part(kStep, '\0');
  std::size_t given = 0;
  int status = Z_OK;
  // A file may hold several members one after the other.
  while (given < bytes.size() || stream.avail_in > 0) {
    if (status == Z_STREAM_END && inflateReset(&stream) != Z_OK) break;
    if (stream.avail_in == 0) {
      const std::size_t count =
          std::min<std::size_t>(bytes.size() - given, std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(bytes.data() + given);
      stream.avail_in = static_cast<uInt>(count);
      given += count;
    }
    do {
      stream.next_out = reinterpret_cast<Bytef*>(part.data());
      stream.avail_out = static_cast<uInt>(part.size());
      status = inflate(&stream, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        return input_error(path + ": damaged gzip data after " + std::to_string(text.size()) +
                           " bytes of text");
      }
      text.append(part.data(), part.size() - stream.avail_out);
    } while (status == Z_OK && stream.avail_out == 0);
  }
  if (status != Z_STREAM_END) {
    return input_error(path + ": the gzip data ends early, after " + std::to_string(text.size()) +
                       " bytes of text");
  }
  return text;
}

}  // namespace autopar
