#include "exec/collective_ops.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "exec/collective_attributes.hpp"
#include "exec/collective_math.hpp"
#include "exec/tensors.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::kAllReduce,  CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll,   CollectiveKind::kBroadcast, CollectiveKind::kPermute,
    CollectiveKind::kShardSlice, CollectiveKind::kSend,      CollectiveKind::kRecv,
};

OrtStatus* failed_status(const std::string& message) {
  return Ort::GetApi().CreateStatus(ORT_FAIL, message.c_str());
}

class CollectiveKernel {
 public:
  CollectiveKernel(Communicator& communicator, CollectiveTimes& times, UnpreparedGroups& unprepared,
                   CollectiveCall call, bool on_gpu)
      : communicator_(communicator),
        times_(times),
        unprepared_(unprepared),
        call_(std::move(call)),
        on_gpu_(on_gpu) {}
  OrtStatusPtr ComputeV2(OrtKernelContext* context);

 private:
  Status run(Ort::KernelContext& context);
  Status communicate(const void* input, void* output);
  void note_order(const CollectiveCall& call);

  Communicator& communicator_;
  CollectiveTimes& times_;
  UnpreparedGroups& unprepared_;
  CollectiveCall call_;
  bool on_gpu_;
};

}  // namespace

void note_call(CollectiveTimes& times, const CollectiveCall& call, int rank, Seconds begin) {
  AUTOPAR_CHECK(!times.runs.empty(), "a collective before the first run");
  const Seconds seconds = steady_seconds() - begin;
  CollectiveTimes::Entry& entry = times.runs.back()[name_of(call.kind)];
  ++entry.count;
  if (!call.group.empty()) entry.bytes += sent_bytes(call);
  entry.seconds += seconds;
  if (!communicates(call.kind)) return;
  times.communicating.back() += seconds;
  if (!times.wants_events || call.group.empty()) return;
  RunEvent event;
  event.rank = rank;
  event.run = static_cast<int>(times.runs.size()) - 1;
  event.step = times.step;
  event.call = times.call;
  event.name = call.op_name;
  event.kind = name_of(call.kind);
  event.begin = begin;
  event.seconds = seconds;
  event.seq = call.seq;
  event.first = call.group.front();
  event.group_size = static_cast<std::int64_t>(call.group.size());
  if (is_message(call.kind)) event.peer = static_cast<int>(call.group[call.position == 0]);
  const Shape& moved = call.kind == CollectiveKind::kRecv ? call.output_shape : call.input_shape;
  const auto bytes = static_cast<double>(element_count(moved) * size_of(call.dtype));
  event.total_bytes = total_bytes(call.kind, bytes, event.group_size);
  event.bus_factor = bus_factor(call.kind, event.group_size);
  times.events.push_back(std::move(event));
}

class CollectiveOp : public Ort::CustomOpBase<CollectiveOp, CollectiveKernel, true> {
 public:
  CollectiveOp(CollectiveKind kind, Communicator& communicator,
               const std::vector<std::int64_t>& ranks, CollectiveTimes& times,
               UnpreparedGroups& unprepared)
      : kind_(kind),
        communicator_(communicator),
        ranks_(ranks),
        times_(times),
        unprepared_(unprepared) {
    InferOutputShapeFn = [](const OrtCustomOp* op, OrtShapeInferContext* context) {
      return static_cast<const CollectiveOp*>(op)->infer(context);
    };
  }

  const char* GetName() const { return name_of(kind_); }
  // ShardSlice stays on the CPU.
  void use_gpu() { on_gpu_ = communicates(kind_); }
  const char* GetExecutionProviderType() const {
    return on_gpu_ ? "CUDAExecutionProvider" : nullptr;
  }
  // The tensor (of all but Recv), then any number of inputs that only order the op.
  std::size_t GetInputTypeCount() const { return kind_ == CollectiveKind::kRecv ? 1 : 2; }
  ONNXTensorElementDataType GetInputType(std::size_t) const {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;  // any
  }
  OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(std::size_t index) const {
    return index + 1 < GetInputTypeCount() ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_VARIADIC;
  }
  int GetVariadicInputMinArity() const { return 0; }
  bool GetVariadicInputHomogeneity() const { return false; }
  std::size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(std::size_t) const {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  }
  OrtStatusPtr CreateKernelV2(const OrtApi&, const OrtKernelInfo* info, void** kernel) const;

 private:
  OrtStatusPtr infer(OrtShapeInferContext* context) const;
  OrtStatusPtr infer_received(OrtShapeInferContext* context) const;

  CollectiveKind kind_;
  bool on_gpu_ = false;
  Communicator& communicator_;
  const std::vector<std::int64_t>& ranks_;
  CollectiveTimes& times_;
  UnpreparedGroups& unprepared_;
};

namespace {

// An integer attribute during shape inference; nothing where it is absent.
std::optional<std::int64_t> int_attribute(const OrtShapeInferContext* context, const char* name) {
  const OrtApi& api = Ort::GetApi();
  const OrtOpAttr* attribute = nullptr;
  const Ort::Status found(api.ShapeInferContext_GetAttribute(context, name, &attribute));
  if (!found.IsOK() || attribute == nullptr) return std::nullopt;
  std::int64_t value = 0;
  std::size_t size = 0;
  const Ort::Status read(api.ReadOpAttr(attribute, ORT_OP_ATTR_INT, &value, sizeof(value), &size));
  if (!read.IsOK()) return std::nullopt;
  return value;
}

OrtStatusPtr set_output(OrtShapeInferContext* context, ONNXTensorElementDataType type,
                        const Shape& shape) {
  const OrtApi& api = Ort::GetApi();
  OrtTensorTypeAndShapeInfo* result = nullptr;
  if (auto* status = api.CreateTensorTypeAndShapeInfo(&result)) return status;
  OrtStatus* status = api.SetTensorElementType(result, type);
  if (status == nullptr) status = api.SetDimensions(result, shape.data(), shape.size());
  if (status == nullptr) status = api.ShapeInferContext_SetOutputTypeShape(context, 0, result);
  api.ReleaseTensorTypeAndShapeInfo(result);
  return status;
}

}  // namespace

// Written against the C interface: the C++ wrapper fixes the output's type to float. Where the
// attributes are wrong only the number of dimensions is given, since ONNX Runtime ignores (and
// leaks) an error from here; the kernel's creation then refuses the node.
OrtStatusPtr CollectiveOp::infer(OrtShapeInferContext* context) const {
  if (kind_ == CollectiveKind::kRecv) return infer_received(context);
  const OrtApi& api = Ort::GetApi();
  OrtTensorTypeAndShapeInfo* input = nullptr;  // owned by the context
  if (auto* status = api.ShapeInferContext_GetInputTypeShape(context, 0, &input)) return status;
  std::size_t rank = 0;
  if (auto* status = api.GetDimensionsCount(input, &rank)) return status;
  Shape shape(rank);
  if (auto* status = api.GetDimensions(input, shape.data(), rank)) return status;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  if (auto* status = api.GetTensorElementType(input, &type)) return status;

  const auto group_size = int_attribute(context, "group_size");
  const auto axis = has_axis(kind_) ? int_attribute(context, axis_attribute(kind_)) : 0;
  const auto concat_axis =
      kind_ == CollectiveKind::kAllToAll ? int_attribute(context, "concat_axis") : 0;
  Shape output(rank, -1);
  if (group_size && *group_size > 0 && axis && concat_axis) {
    auto known = output_shape_of(kind_, shape, *group_size, *axis, *concat_axis);
    if (known) output = *known;
  }

  return set_output(context, type, output);
}

OrtStatusPtr CollectiveOp::infer_received(OrtShapeInferContext* context) const {
  const OrtApi& api = Ort::GetApi();
  const OrtOpAttr* attribute = nullptr;
  if (auto* status = api.ShapeInferContext_GetAttribute(context, "shape", &attribute)) {
    return status;
  }
  std::size_t bytes = 0;  // asked for first; that is no error of ours
  Ort::Status asked(api.ReadOpAttr(attribute, ORT_OP_ATTR_INTS, nullptr, 0, &bytes));
  Shape shape(bytes / sizeof(std::int64_t));
  if (bytes > 0) {
    if (auto* status = api.ReadOpAttr(attribute, ORT_OP_ATTR_INTS, shape.data(), bytes, &bytes)) {
      return status;
    }
  }
  const auto type = int_attribute(context, "dtype");
  if (!type) return nullptr;  // the kernel's creation refuses the node
  return set_output(context, static_cast<ONNXTensorElementDataType>(*type), shape);
}

OrtStatusPtr CollectiveOp::CreateKernelV2(const OrtApi&, const OrtKernelInfo* info,
                                          void** kernel) const {
  std::string where = GetName();
  try {
    const Ort::ConstKernelInfo node(info);
    std::string name = node.GetNodeName();
    if (name.empty()) name = node.GetOutputName(0);
    where += " '" + name + "'";
    const CollectiveAttributes attributes = read_attributes(kind_, node);
    if (auto status = verify(attributes, kind_, ranks_, communicator_.size()); !status) {
      return failed_status(where + ": " + status.error().message);
    }
    // Known shapes are checked here: shape inference cannot refuse a node.
    if (kind_ != CollectiveKind::kRecv) {
      const Ort::TypeInfo type = node.GetInputTypeInfo(0);
      const auto shape =
          output_shape_of(kind_, type.GetTensorTypeAndShapeInfo().GetShape(), attributes.group_size,
                          attributes.axis, attributes.concat_axis);
      if (!shape) return failed_status(where + ": " + shape.error().message);
    }
    CollectiveCall call = make_call(kind_, attributes, communicator_.rank());
    call.op_name = name;
    if (unprepared_.noted && communicates(kind_)) {
      unprepared_.partitions.push_back(
          {attributes.groups, attributes.group_size, is_message(kind_)});
    }
    *kernel = new CollectiveKernel(communicator_, times_, unprepared_, std::move(call), on_gpu_);
    return nullptr;
  } catch (const std::exception& error) {
    return failed_status(where + ": " + error.what());
  }
}

namespace {

OrtStatusPtr CollectiveKernel::ComputeV2(OrtKernelContext* context) {
  try {
    Ort::KernelContext kernel_context(context);
    if (auto status = run(kernel_context); !status) return failed_status(status.error().message);
    return nullptr;
  } catch (const std::exception& error) {
    return failed_status(to_text(call_) + ": " + error.what());
  }
}

Status CollectiveKernel::run(Ort::KernelContext& context) {
  const Seconds begin = steady_seconds();
  if (on_gpu_) {
    call_.stream = context.GetGPUComputeStream();
    if (call_.stream == nullptr) {
      return runtime_error(to_text(call_) + ": ONNX Runtime's CUDA provider names no stream");
    }
  }
  if (call_.kind == CollectiveKind::kRecv) {
    Ort::UnownedValue output = context.GetOutput(0, call_.output_shape);
    AUTOPAR_RETURN_IF_ERROR(communicate(nullptr, output.GetTensorMutableRawData()));
    note_call(times_, call_, communicator_.rank(), begin);
    return Ok{};
  }
  const Ort::ConstValue input = context.GetInput(0);
  const auto type = input.GetTensorTypeAndShapeInfo();
  const auto dtype = dtype_of(type.GetElementType());
  if (!dtype) return input_error(to_text(call_) + ": element type is not supported");
  // The kernel's own copy may be in use only once at a time, so that it can be changed here.
  call_.dtype = *dtype;
  call_.input_shape = type.GetShape();
  const auto rank = static_cast<int>(call_.input_shape.size());
  if (has_axis(call_.kind)) {
    auto output = output_shape_of(call_.kind, call_.input_shape,
                                  static_cast<std::int64_t>(call_.group.size()), call_.axis,
                                  call_.concat_axis);
    if (!output) return input_error(to_text(call_) + ": " + output.error().message);
    call_.output_shape = *output;
    if (call_.axis < 0) call_.axis += rank;
    if (call_.concat_axis < 0) call_.concat_axis += rank;
  } else {
    call_.output_shape = call_.input_shape;
  }
  Ort::UnownedValue output = context.GetOutput(0, call_.output_shape);
  AUTOPAR_RETURN_IF_ERROR(communicate(input.GetTensorRawData(), output.GetTensorMutableRawData()));
  note_call(times_, call_, communicator_.rank(), begin);
  return Ok{};
}

Status CollectiveKernel::communicate(const void* input, void* output) {
  if (!communicates(call_.kind)) {
    std::vector<const void*> inputs(call_.group.size());
    std::vector<void*> outputs(call_.group.size());
    inputs[static_cast<std::size_t>(call_.position)] = input;
    outputs[static_cast<std::size_t>(call_.position)] = output;
    perform(call_, inputs, outputs);
    return Ok{};
  }
  if (!unprepared_.partitions.empty()) {
    const std::vector<GroupPartition> partitions = std::exchange(unprepared_.partitions, {});
    if (auto prepared = communicator_.prepare(partitions); !prepared) {
      times_.stopped = true;
      return prepared;
    }
  }
  note_order(call_);
  if (call_.group.empty()) {  // a message of others
    leave_alone(call_, input, output);
    return Ok{};
  }
  auto status = communicator_.run(call_, input, output);
  if (!status) times_.stopped = true;
  return status;
}

void CollectiveKernel::note_order(const CollectiveCall& call) {
  if (call.seq <= times_.last_seq && times_.out_of_order.empty()) {
    times_.out_of_order = to_text(call) + " was issued after the collective with seq " +
                          std::to_string(times_.last_seq);
  }
  times_.last_seq = call.seq;
}

}  // namespace

CollectiveOps::CollectiveOps(Communicator& communicator, std::vector<std::int64_t> ranks)
    : ranks_(std::move(ranks)), domain_(kCollectiveDomain) {
  for (CollectiveKind kind : kKinds) {
    ops_.push_back(std::make_unique<CollectiveOp>(kind, communicator, ranks_, times_, unprepared_));
    domain_.Add(ops_.back().get());
  }
}

CollectiveOps::~CollectiveOps() = default;

void CollectiveOps::use_gpu() {
  for (const auto& op : ops_) op->use_gpu();
}

void CollectiveOps::add_to(OrtSessionOptions* options) {
  Ort::UnownedSessionOptions(options).Add(domain_);
}

}  // namespace autopar
