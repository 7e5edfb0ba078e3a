#include "autopar/stages.hpp"

namespace autopar {

namespace {

bool same_data(const Value& a, const Value& b) {
  const Tensor *x = a.tensor(), *y = b.tensor();
  if (x == nullptr || y == nullptr) return a.kind != ValueKind::kConstant;
  return x == y || *x == *y;
}

bool same_value(const Value& a, const Value& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.kind == b.kind &&
         a.accumulates == b.accumulates && a.of_micro_batch == b.of_micro_batch &&
         a.of_batch == b.of_batch && same_data(a, b);
}

class Matching {
 public:
  Matching(const Graph& a, const Graph& b)
      : a_(a), b_(b), to_(a.values.size()), from_(b.values.size()) {}

  std::optional<std::vector<ValueId>> run() {
    if (a_.ops.size() != b_.ops.size() || a_.values.size() != b_.values.size()) return {};
    for (std::size_t o = 0; o < a_.ops.size(); ++o) {
      const Op &x = a_.ops[o], &y = b_.ops[o];
      const bool same = x.type == y.type && x.domain == y.domain && x.phase == y.phase &&
                        x.sums == y.sums && x.attributes == y.attributes &&
                        match(x.inputs, y.inputs) && match(x.outputs, y.outputs);
      if (!same) return {};
    }
    if (!match(a_.outputs, b_.outputs)) return {};
    return std::move(to_);
  }

 private:
  bool match(const std::vector<ValueId>& x, const std::vector<ValueId>& y) {
    if (x.size() != y.size()) return false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i].valid() != y[i].valid()) return false;
      if (!x[i].valid()) continue;
      ValueId &to = to_[x[i].index()], &from = from_[y[i].index()];
      if (!to.valid() && !from.valid()) {
        if (!same_value(a_.value(x[i]), b_.value(y[i]))) return false;
        to = y[i];
        from = x[i];
      }
      if (!(to == y[i]) || !(from == x[i])) return false;
    }
    return true;
  }

  const Graph& a_;
  const Graph& b_;
  std::vector<ValueId> to_, from_;
};

}  // namespace

std::optional<std::vector<ValueId>> same_values(const Graph& a, const Graph& b) {
  return Matching(a, b).run();
}

}  // namespace autopar
