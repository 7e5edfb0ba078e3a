#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "autopar/files.hpp"
#include "io/export/model_proto.hpp"

namespace autopar {

namespace pb = google::protobuf::io;

Status write_model_proto(const onnx::ModelProto& model, const std::string& path) {
  if (model.ByteSizeLong() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    return input_error(path + ": the model takes " + std::to_string(model.ByteSizeLong()) +
                       " bytes, an ONNX file can hold less than 2147483648; store its weights as "
                       "external data");
  }
  return write_file_atomically(path, [&](int file) -> int {
    pb::FileOutputStream stream(file, 1 << 20);
    bool good = true;
    {
      pb::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      good = model.SerializeToCodedStream(&coded) && !coded.HadError();
    }
    good = stream.Flush() && good;
    return good ? 0 : (stream.GetErrno() != 0 ? stream.GetErrno() : EIO);
  });
}

Result<onnx::ModelProto> read_model_proto(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return input_error(path + ": cannot be read: " + std::strerror(errno));
  pb::FileInputStream stream(file, 1 << 20);
  stream.SetCloseOnDelete(true);
  onnx::ModelProto model;
  if (!model.ParseFromZeroCopyStream(&stream)) {
    const int error = stream.GetErrno();
    return input_error(path + (error != 0 ? std::string(": cannot be read: ") + std::strerror(error)
                                          : std::string(": is not an ONNX file")));
  }
  return model;
}

}  // namespace autopar
