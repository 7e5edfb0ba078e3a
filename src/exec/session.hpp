// Sessions of ONNX Runtime as this program uses them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "exec/tensors.hpp"

namespace autopar {

// "what" and what the exception says: kResource where memory or the disk did not suffice.
Error failure_of(const std::string& what, const std::exception& exception, ErrorCode otherwise);

// One thread pool for all sessions of the environment, whose threads sleep when idle: sessions
// with pools of their own would be several times slower when they outnumber the cores.
// Precondition: open_onnx_runtime() succeeded.
Ort::Env make_environment(int threads);

// Sequential execution on the shared pool; the ops of the file as they are unless `optimize`; no
// second copy of the weights in a packed form.
Ort::SessionOptions session_options(bool optimize);

// The session of an ONNX file, or of a model in memory that stands for it. Throws Ort::Exception.
Ort::Session open_model(Ort::Env& environment, const std::string& path, const std::string* bytes,
                        Ort::SessionOptions& options);

// What the unsharded model gives for whole inputs. Inputs that it does not know are ignored.
struct Reference {
  std::map<std::string, Tensor> outputs;
  Seconds wall = 0;
};
Result<Reference> run_model(Ort::Env& environment, const RunRequest& request,
                            const std::map<std::string, Tensor>& inputs);

// Runs a session on inputs in its own order and returns its outputs in its own order. Throws
// Ort::Exception.
std::vector<Ort::Value> run_session(Ort::Session& session, const Ort::RunOptions& options,
                                    const std::vector<Declared>& inputs,
                                    const std::vector<Ort::Value>& values,
                                    const std::vector<Declared>& outputs);

}  // namespace autopar
