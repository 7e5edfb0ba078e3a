// Another batch for graphs whose constants say theirs: what comes out is the graph as it would have
// been written for that batch. What cannot have one names the op; and so do ops by which samples
// depend on each other.
#include "autopar/rebatch.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "graphs.hpp"

namespace autopar::rebatch_test {

using namespace testing;

namespace {

using Catch::Matchers::Contains;

// Random ops on a batch of samples, every shape written out. The batch is the outer part of one
// dimension of every value.
class BatchModel {
 public:
  BatchModel(std::uint64_t seed, std::int64_t batch)
      : draw_{std::mt19937_64(seed)}, batch_(batch), seed_(seed) {}

  Graph run(int ops) {
    values_ = {{b_.input("X", {batch_, 4, 8}), 0}};
    for (int i = 0; i < ops; ++i) add(i);
    b_.graph.outputs = {values_.back().id};
    return std::move(b_.graph);
  }

 private:
  struct Samples {
    ValueId id;
    std::size_t dim;
  };
  const Shape& shape_of(const Samples& v) const { return b_.shape(v.id); }

  void add(int i) {
    const Samples x = values_.back();
    const Shape shape = shape_of(x);
    const std::string name = std::to_string(i);
    const std::size_t rank = shape.size();
    const std::size_t other = rank < 2 ? 0 : (x.dim + 1 + draw_.below(rank - 1)) % rank;
    switch (draw_.below(12)) {
      case 0:
        return push(b_.op("Tanh", {x.id}, shape), x.dim);
      case 1:
        return multiply(x, name);
      case 2:
        return merge(x, name);
      case 3:
        return split(x, other, name);
      case 4:
        return turn(x);
      case 5:
      case 6:
        return add_constant(x, name);
      case 7:
        return add_earlier(x);
      case 8:
        if (rank < 2) return;
        return push(b_.op("Softmax", {x.id}, shape, {{"axis", std::int64_t(other)}}), x.dim);
      case 9:
        return rank < 2 ? void() : sum_and_expand(x, other, name);
      case 10:
        return rank < 2 ? void() : join(x, other, name);
      default:
        return add_expanded_weight(x, name);
    }
  }

  void push(ValueId id, std::size_t dim) { values_.push_back({id, dim}); }

  void multiply(const Samples& x, const std::string& name) {
    Shape shape = shape_of(x);
    if (shape.size() < 2 || x.dim + 1 == shape.size()) return;
    const ValueId w = b_.parameter("W" + name, {shape.back(), 8});
    shape.back() = 8;
    push(b_.op("MatMul", {x.id, w}, shape), x.dim);
  }
  // The batch stays the outer part.
  void merge(const Samples& x, const std::string& name) {
    Shape shape = shape_of(x);
    if (x.dim + 1 == shape.size()) return;
    shape[x.dim] *= shape[x.dim + 1];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(x.dim) + 1);
    std::vector<std::int64_t> target = shape;
    if (draw_.below(4) == 0) target[draw_.below(shape.size())] = -1;
    push(b_.op("Reshape", {x.id, b_.ints("merged" + name, target)}, shape), x.dim);
  }
  void split(const Samples& x, std::size_t other, const std::string& name) {
    Shape shape = shape_of(x);
    const std::size_t at = shape[x.dim] > batch_ ? x.dim : other;
    const std::int64_t inner = at == x.dim ? shape[at] / batch_ : 2;
    if (shape.size() > 3 || (at == x.dim && shape[at] == batch_) || shape[at] % inner != 0) return;
    shape[at] /= inner;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at) + 1, inner);
    std::vector<std::int64_t> target = shape;
    if (draw_.below(4) == 0) target[draw_.below(shape.size())] = -1;
    push(b_.op("Reshape", {x.id, b_.ints("split" + name, target)}, shape),
         x.dim + (at < x.dim ? 1 : 0));
  }
  void turn(const Samples& x) {
    const Shape shape = shape_of(x);
    std::vector<std::int64_t> order;
    for (std::size_t d = 0; d < shape.size(); ++d) order.push_back(std::int64_t(d));
    for (std::size_t d = shape.size(); d > 1; --d) std::swap(order[d - 1], order[draw_.below(d)]);
    Shape turned;
    std::size_t dim = 0;
    for (std::size_t d = 0; d < order.size(); ++d) {
      turned.push_back(shape[static_cast<std::size_t>(order[d])]);
      if (order[d] == std::int64_t(x.dim)) dim = d;
    }
    push(b_.op("Transpose", {x.id}, turned, {{"perm", order}}), dim);
  }
  // Of one element along the batch, of none, or of as many equal ones as it has samples.
  void add_constant(const Samples& x, const std::string& name) {
    const Shape shape = shape_of(x);
    Shape slice = shape;
    slice[x.dim] /= batch_;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (draw_.below(3) == 0) slice[d] = 1;
    }
    const bool repeats = draw_.below(3) != 0;
    if (!repeats) slice[x.dim] = 1;
    Shape all = slice;
    if (repeats) all[x.dim] *= shape[x.dim] / slice[x.dim];
    if (repeats && all[x.dim] != shape[x.dim]) return;
    const ValueId id = b_.constant("C" + name, all);
    if (repeats) fill(b_.graph.value(id), slice, x.dim);
    push(b_.op("Add", {x.id, id}, shape), x.dim);
  }
  // The number is that of its place in the slice.
  void fill(Value& value, const Shape& slice, std::size_t dim) const {
    Tensor tensor{DType::kFloat32, value.shape, {}};
    for (std::int64_t e = 0; e < element_count(value.shape); ++e) {
      std::int64_t rest = e, place = 0, stride = 1;
      for (std::size_t d = value.shape.size(); d-- > 0;) {
        const std::int64_t index = rest % value.shape[d];
        rest /= value.shape[d];
        place += (d == dim ? index % slice[d] : index) * stride;
        stride *= slice[d];
      }
      const auto number = static_cast<float>(place * 7 % 31 + std::int64_t(seed_ % 5));
      tensor.bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    value.data = std::move(tensor);
  }
  void add_earlier(const Samples& x) {
    for (const Samples& other : values_) {
      if (shape_of(other) != shape_of(x) || other.dim != x.dim || other.id == x.id) continue;
      return push(b_.op("Sub", {x.id, other.id}, shape_of(x)), x.dim);
    }
  }
  void sum_and_expand(const Samples& x, std::size_t other, const std::string& name) {
    const Shape shape = shape_of(x);
    Shape column = shape;
    column[other] = 1;
    const ValueId axes = b_.ints("axes" + name, {std::int64_t(other)});
    const ValueId sum = b_.op("ReduceSum", {x.id, axes}, column);
    push(b_.op("Expand", {sum, b_.ints("wide" + name, shape)}, shape), x.dim);
  }
  void join(const Samples& x, std::size_t other, const std::string&) {
    Shape shape = shape_of(x);
    if (shape[other] > 16) return;
    shape[other] *= 2;
    push(b_.op("Concat", {x.id, x.id}, shape, {{"axis", std::int64_t(other)}}), x.dim);
  }
  // What is as long as the batch is only seen from who reads it.
  void add_expanded_weight(const Samples& x, const std::string& name) {
    const Shape shape = shape_of(x);
    Shape row(shape.size(), 1);
    row.back() = x.dim + 1 == shape.size() ? 1 : shape.back();
    const ValueId w = b_.parameter("V" + name, row);
    const ValueId wide = b_.op("Expand", {w, b_.ints("all" + name, shape)}, shape);
    push(b_.op("Mul", {x.id, wide}, shape), x.dim);
  }

  GraphWriter b_;
  Draw draw_;
  const std::int64_t batch_;
  const std::uint64_t seed_;
  std::vector<Samples> values_;
};

// Constants by what they hold, -1 in a shape by what it stands for.
std::string text_of(const Graph& graph) {
  std::string text;
  for (const Op& op : graph.ops) {
    text += op.name + " " + op.type;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const Value& value = graph.value(op.inputs[i]);
      text += " ";
      if (op.type == "Reshape" && i == 1) {
        const auto target = *constant_ints(graph, op, i);
        for (std::size_t d = 0; d < target.size(); ++d) {
          const std::int64_t stands = graph.value(op.outputs[0]).shape[d];
          text += std::to_string(target[d] == -1 ? stands : target[d]) + ",";
        }
      } else if (value.kind == ValueKind::kConstant) {
        text += to_text(value.shape);
        for (const char c : value.tensor()->bytes) text += "." + std::to_string(int(c));
      } else {
        text += value.name;
      }
    }
    text += " -> " + graph.value(op.outputs[0]).name + to_text(graph.value(op.outputs[0]).shape);
    text += "\n";
  }
  return text;
}

std::string refusal(const Graph& graph, std::int64_t batch, std::size_t dim = 0) {
  const auto done = rebatch(graph, rules_of(graph).value(), dim, batch);
  return done ? "" : done.error().message;
}

std::string mixing(const Graph& graph) {
  return batch_mixing_op(graph, rules_of(graph).value(), 0).value_or("");
}

// X [6, 4], and what is made of it.
Graph model_of(const std::function<ValueId(GraphWriter&, ValueId)>& made) {
  GraphWriter b;
  const ValueId x = b.input("X", {6, 4});
  const ValueId y = made(b, x);
  b.graph.outputs = {y};
  return std::move(b.graph);
}

ValueId add_norm(GraphWriter& b, ValueId x, bool trains) {
  std::vector<ValueId> inputs = {x};
  for (const char* name : {"scale", "bias", "mean", "variance"}) {
    inputs.push_back(b.parameter(name, {4}));
  }
  const ValueId y = b.op("BatchNormalization", inputs, {6, 4}, {}, "norm");
  if (!trains) return y;
  Op& op = b.graph.ops.back();
  op.attributes["training_mode"] = std::int64_t{1};
  for (const char* name : {"next_mean", "next_variance"}) {
    Value next;
    next.name = name;
    next.shape = {4};
    next.producer = OpId(std::int64_t(b.graph.ops.size()) - 1);
    b.graph.ops.back().outputs.push_back(b.graph.add_value(next));
  }
  return y;
}

}  // namespace

TEST_CASE("a graph for another batch is the one written for it", "[rebatch]") {
  int restated = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const std::int64_t batches[] = {2, 4, 6, 8, 3, 1};
    const std::int64_t from = batches[seed % 5], to = batches[seed / 5 % 6];
    if (from == to) continue;
    const Graph graph = BatchModel(seed, from).run(8), expected = BatchModel(seed, to).run(8);
    REQUIRE(verify(graph).ok());
    CAPTURE(seed, from, to, text_of(graph));
    const auto done = rebatch(graph, rules_of(graph).value(), 0, to);
    INFO((done.ok() ? "" : done.error().message));
    REQUIRE(done.ok());
    CHECK(verify(done->graph).ok());
    CHECK(text_of(done->graph) == text_of(expected));
    restated += done->restated.empty() ? 0 : 1;
  }
  CHECK(restated > 200);
}

TEST_CASE("the batch may be another dimension than the first", "[rebatch]") {
  GraphWriter b;
  const ValueId x = b.input("X", {3, 6, 4}), mask = b.input("M", {3});
  const ValueId y = b.op("Reshape", {x, b.ints("s", {3, 24})}, {3, 24}, {}, "fold");
  b.graph.outputs = {b.op("Relu", {y}, {3, 24}), b.op("Neg", {mask}, {3})};
  const auto done = rebatch(b.graph, rules_of(b.graph).value(), 1, 2);
  REQUIRE(done.ok());
  CHECK(done->graph.value(x).shape == Shape{3, 2, 4});
  CHECK(done->graph.value(y).shape == Shape{3, 8});
  CHECK(done->graph.value(mask).shape == Shape{3});
  CHECK(done->restated == std::vector<std::string>{"fold"});
  CHECK(constant_ints(done->graph, done->graph.ops[0], 1) == std::vector<std::int64_t>{3, 8});
}

TEST_CASE("a constant that several ops read is stated anew for those along the batch",
          "[rebatch]") {
  GraphWriter b;
  const ValueId x = b.input("X", {6, 4}), w = b.parameter("W", {24});
  const ValueId shape = b.ints("shape", {6, 2, 2});
  b.graph.outputs = {b.op("Reshape", {x, shape}, {6, 2, 2}, {}, "samples"),
                     b.op("Reshape", {w, shape}, {6, 2, 2}, {}, "weights")};
  const auto done = rebatch(b.graph, rules_of(b.graph).value(), 0, 12);
  REQUIRE(done.ok());
  CHECK(done->restated == std::vector<std::string>{"samples"});
  CHECK(constant_ints(done->graph, done->graph.ops[0], 1) == std::vector<std::int64_t>{12, 2, 2});
  CHECK(constant_ints(done->graph, done->graph.ops[1], 1) == std::vector<std::int64_t>{6, 2, 2});
  CHECK(done->graph.value(b.graph.outputs[1]).shape == Shape{6, 2, 2});
}

TEST_CASE("a Reshape that says the own batch is found on another one", "[rebatch]") {
  const auto on = [](std::int64_t batch, const std::vector<std::int64_t>& target,
                     const Shape& folded) {
    GraphWriter b;
    const ValueId x = b.op("Relu", {b.input("X", {batch, 6, 8})}, {batch, 6, 8});
    b.graph.outputs = {b.op("Reshape", {x, b.ints("s", target)}, folded, {}, "fold")};
    return std::move(b.graph);
  };
  const auto stale = [](const Graph& own, const Graph& other) {
    return op_of_own_batch(own, other, 0).value().value_or("");
  };
  const std::string fold = "op 'fold' (Reshape)";
  CHECK(stale(on(4, {4, -1, 8}, {4, 6, 8}), on(8, {4, -1, 8}, {4, 12, 8})) == fold);
  CHECK(stale(on(4, {4, -1, 8}, {4, 6, 8}), on(2, {4, -1, 8}, {4, 3, 8})) == fold);
  CHECK(stale(on(4, {4, -1}, {4, 48}), on(1, {4, -1}, {4, 12})) == fold);
  CHECK(stale(on(1, {1, -1, 8}, {1, 6, 8}), on(8, {1, -1, 8}, {1, 48, 8})) == fold);
  // The import tells the numbers that -1 stands for.
  CHECK(stale(on(4, {4, 12, 4}, {4, 12, 4}), on(8, {4, 24, 4}, {4, 24, 4})) == fold);
  CHECK(stale(on(1, {1, 12, 4}, {1, 12, 4}), on(8, {1, 96, 4}, {1, 96, 4})) == fold);
  CHECK(stale(on(4, {4, 12, 4}, {4, 12, 4}), on(8, {8, 12, 4}, {8, 12, 4})).empty());
  CHECK(stale(on(4, {48, 4}, {48, 4}), on(8, {96, 4}, {96, 4})).empty());
  // What changes nothing on the own batch is not there.
  Graph none = on(4, {4, -1, 8}, {4, 6, 8});
  none.outputs = none.ops[0].outputs;
  none.ops.pop_back();
  none.values.pop_back();
  CHECK(stale(none, on(8, {4, -1, 8}, {4, 12, 8})) == fold);
  CHECK(stale(on(4, {4, -1}, {4, 48}), on(4, {4, -1}, {4, 48})).empty());
  // What is told from the input, or all samples in one dimension.
  CHECK(stale(on(4, {4, -1, 8}, {4, 6, 8}), on(8, {8, -1, 8}, {8, 6, 8})).empty());
  CHECK(stale(on(4, {0, -1, 8}, {4, 6, 8}), on(8, {0, -1, 8}, {8, 6, 8})).empty());
  CHECK(stale(on(4, {-1, 48}, {4, 48}), on(8, {-1, 48}, {8, 48})).empty());
  CHECK(stale(on(4, {-1, 8}, {24, 8}), on(8, {-1, 8}, {48, 8})).empty());
  CHECK(stale(on(1, {-1, 8}, {6, 8}), on(8, {-1, 8}, {48, 8})).empty());
  CHECK(stale(on(1, {1, -1, 48}, {1, 1, 48}), on(8, {1, -1, 48}, {1, 8, 48})).empty());
  CHECK(refusal(on(1, {1, -1, 8}, {1, 6, 8}), 8).find("batch of 1") != std::string::npos);
}

TEST_CASE("what repeats one sample as often as the own batch is long is found", "[rebatch]") {
  const auto on = [](std::int64_t batch, bool expands, std::int64_t extent, std::int64_t made) {
    GraphWriter b;
    const ValueId x = b.input("X", {batch, 4});
    b.graph.outputs = {
        expands ? b.op("Expand", {x, b.ints("s", {extent, 4})}, {made, 4}, {}, "repeat")
                : b.op("Add", {x, b.constant("c", {extent, 4})}, {made, 4}, {}, "repeat")};
    return std::move(b.graph);
  };
  const auto stale = [](const Graph& own, const Graph& other) {
    return op_of_own_batch(own, other, 0).value().value_or("");
  };
  CHECK(stale(on(3, true, 3, 3), on(1, true, 3, 3)) == "op 'repeat' (Expand)");
  CHECK(stale(on(3, false, 3, 3), on(1, false, 3, 3)) == "op 'repeat' (Add)");
  CHECK(stale(on(3, true, 1, 3), on(1, true, 1, 1)).empty());
  CHECK(stale(on(3, false, 1, 3), on(1, false, 1, 1)).empty());
}

TEST_CASE("what reads or makes samples of the own batch alone is found", "[rebatch]") {
  const auto stale = [](const auto& on, std::int64_t other) {
    return op_of_own_batch(on(8), on(other), 0).value().value_or("");
  };
  const auto resizes = [](std::int64_t batch) {
    GraphWriter b;
    const ValueId x = b.op("Relu", {b.input("X", {batch, 3, 4, 4})}, {batch, 3, 4, 4});
    b.graph.outputs = {b.op("Resize", {x, ValueId(), ValueId(), b.ints("s", {8, 3, 8, 8})},
                            {8, 3, 8, 8}, {{"mode", std::string("nearest")}}, "up")};
    return std::move(b.graph);
  };
  CHECK(stale(resizes, 16) == "op 'up' (Resize)");
  CHECK(stale(resizes, 4) == "op 'up' (Resize)");
  const auto looks_up = [](std::int64_t batch, std::vector<std::int64_t> rows) {
    GraphWriter b;
    const ValueId x = b.op("Relu", {b.input("X", {batch, 6})}, {batch, 6});
    const auto count = static_cast<std::int64_t>(rows.size());
    b.graph.outputs = {
        b.op("Gather", {x, b.ints("i", rows)}, {count, 6}, {{"axis", std::int64_t{0}}}, "rows")};
    return std::move(b.graph);
  };
  const auto halves = [&](std::int64_t batch) { return looks_up(batch, {0, 1, 2, 3}); };
  const auto first = [&](std::int64_t batch) { return looks_up(batch, {0}); };
  CHECK(stale(halves, 16) == "op 'rows' (Gather)");
  CHECK(stale(first, 16).empty());
  const auto scales = [](std::int64_t batch) {
    GraphWriter b;
    const ValueId x = b.input("X", {batch, 4, 6});
    b.graph.outputs = {b.op("Relu", {x}, {batch, 4, 6})};
    return std::move(b.graph);
  };
  CHECK(stale(scales, 16).empty());
}

TEST_CASE("what has no other batch is refused by the op", "[rebatch]") {
  GraphWriter two;
  two.graph.outputs = {two.op("Relu", {two.input("X", {6, 4})}, {6, 4}),
                       two.op("Relu", {two.input("Y", {5, 4})}, {5, 4})};
  CHECK_THAT(refusal(two.graph, 2), Contains("'Y' has 5") && Contains("others have 6"));
  CHECK_THAT(refusal(two.graph, 2, 3), Contains("no data input has a dimension 3"));

  CHECK_THAT(refusal(model_of([](GraphWriter& b, ValueId x) {
                       return b.op("Add", {x, b.constant("table", {6, 4})}, {6, 4}, {}, "shift");
                     }),
                     2),
             Contains("op 'shift' (Add)") && Contains("'table'") && Contains("slices that differ"));
  CHECK_THAT(refusal(model_of([](GraphWriter& b, ValueId x) {
                       return b.op("Add", {x, b.parameter("w", {6, 4})}, {6, 4}, {}, "shift");
                     }),
                     2),
             Contains("op 'shift' (Add)") && Contains("the weight 'w'"));
  CHECK_THAT(refusal(model_of([](GraphWriter& b, ValueId x) {
                       const ValueId t = b.op("Transpose", {x}, {4, 6},
                                              {{"perm", std::vector<std::int64_t>{1, 0}}});
                       return b.op("Reshape", {t, b.ints("s", {24})}, {24}, {}, "fold");
                     }),
                     2),
             Contains("op 'fold' (Reshape)") && Contains("batch inside"));
  CHECK_THAT(refusal(model_of([](GraphWriter& b, ValueId x) {
                       return b.op("Slice",
                                   {x, b.ints("from", {0}), b.ints("to", {3}), b.ints("axis", {0})},
                                   {3, 4}, {}, "first");
                     }),
                     2),
             Contains("op 'first' (Slice)") && Contains("dimension 0 of 'X'"));
  CHECK_THAT(refusal(model_of([](GraphWriter& b, ValueId x) {
                       return b.op("Gather", {x, b.ints("some", {1, 3})}, {2, 4},
                                   {{"axis", std::int64_t{0}}}, "pick");
                     }),
                     2),
             Contains("op 'pick' (Gather)"));
}

TEST_CASE("ops by which samples depend on each other are named", "[rebatch]") {
  CHECK(mixing(model_of([](GraphWriter& b, ValueId x) { return add_norm(b, x, true); })) == "norm");
  CHECK(mixing(model_of([](GraphWriter& b, ValueId x) { return add_norm(b, x, false); })).empty());
  for (const std::int64_t axis : {0, 1}) {
    const std::string at = axis == 0 ? "count" : "";
    CHECK(mixing(model_of([&](GraphWriter& b, ValueId x) {
            Tensor number = int64_tensor({1}, {axis});
            number.shape = {};
            const ValueId id = b.ints("axis", {axis});
            b.graph.value(id).shape = {};
            b.graph.value(id).data = number;
            return b.op("CumSum", {x, id}, {6, 4}, {}, "count");
          })) == at);
    CHECK(mixing(model_of([&](GraphWriter& b, ValueId x) {
            const Shape shape = axis == 0 ? Shape{2, 4} : Shape{6, 2};
            return b.op("TopK", {x, b.ints("k", {2})}, shape, {{"axis", axis}}, "count");
          })) == at);
    CHECK(mixing(model_of([&](GraphWriter& b, ValueId x) {
            return b.op("Softmax", {x}, {6, 4}, {{"axis", axis}}, "count");
          })) == at);
    // Sums over the batch, told or compared with.
    const auto sum = [&](GraphWriter& b, ValueId x) {
      const Shape row = axis == 0 ? Shape{1, 4} : Shape{6, 1};
      return b.op("ReduceSum", {x, b.ints("axes", {axis})}, row);
    };
    CHECK(mixing(model_of([&](GraphWriter& b, ValueId x) {
            return b.op("Relu", {sum(b, x)}, axis == 0 ? Shape{1, 4} : Shape{6, 1});
          })).empty());
    CHECK(mixing(model_of([&](GraphWriter& b, ValueId x) {
            return b.op("Sub", {x, sum(b, x)}, {6, 4}, {}, "count");
          })) == at);
    // By way of others, too.
    CHECK(mixing(model_of([&](GraphWriter& b, ValueId x) {
            const ValueId row = sum(b, x);
            return b.op("Div", {x, b.op("Exp", {row}, b.shape(row))}, {6, 4}, {}, "count");
          })) == at);
  }
  // Products of all samples with all.
  CHECK(mixing(model_of([](GraphWriter& b, ValueId x) {
          const ValueId t =
              b.op("Transpose", {x}, {4, 6}, {{"perm", std::vector<std::int64_t>{1, 0}}});
          const ValueId gram = b.op("MatMul", {t, x}, {4, 4}, {}, "gram");
          return b.op("MatMul", {x, gram}, {6, 4}, {}, "back");
        })) == "back");
  CHECK(mixing(model_of([](GraphWriter& b, ValueId x) {
          const ValueId t =
              b.op("Transpose", {x}, {4, 6}, {{"perm", std::vector<std::int64_t>{1, 0}}});
          return b.op("MatMul", {x, t}, {6, 6}, {}, "scores");
        })) == "scores");
}

TEST_CASE("the backward pass does not count as mixing", "[rebatch]") {
  Graph graph = model_of([](GraphWriter& b, ValueId x) {
    return b.op("Softmax", {x}, {6, 4}, {{"axis", std::int64_t{0}}}, "odd");
  });
  CHECK(mixing(graph) == "odd");
  graph.ops[0].phase = Phase::kBackward;
  CHECK(mixing(graph).empty());
}

}  // namespace autopar::rebatch_test
