#include "search/rec/prices.hpp"

#include <algorithm>
#include <cmath>

namespace autopar::rec {

int role_on(const Spec& spec, int axis) {
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    const auto& axes = spec.dims[d];
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      return kSplit + static_cast<int>(d);
    }
  }
  const auto& partial = spec.partial;
  return std::find(partial.begin(), partial.end(), axis) == partial.end() ? kWhole : kPartial;
}

const RoleTable& RolePrices::table(std::size_t rank, DType dtype, double elements) {
  const auto [kept, is_new] = tables_.try_emplace({elements, rank, dtype});
  if (!is_new) return kept->second;
  // Rows and columns divisible by the axis, about as many elements.
  const double parts = static_cast<double>(model_.mesh().size());
  const double columns = parts * std::max(1.0, std::round(elements / parts / parts));
  const Shape shape = {model_.mesh().size(), static_cast<std::int64_t>(columns)};
  Spec whole = replicated(2), partial = whole, rows = whole, other = whole;
  partial.partial = {0};
  rows.dims[0] = {0};
  other.dims[1] = {0};
  const std::vector<Spec> kinds = {whole, partial, rows, other};
  const auto prices = model_.reshard_prices(shape, dtype, kinds, kinds);
  RoleTable& table = kept->second;
  table.id = static_cast<int>(tables_.size()) - 1;
  table.from.assign(rank + kSplit, Row(rank + kSplit));
  for (std::size_t from = 0; from < table.size(); ++from) {
    for (std::size_t to = 0; to < table.size(); ++to) {
      const std::size_t a = std::min<std::size_t>(from, kSplit);
      std::size_t b = std::min<std::size_t>(to, kSplit);
      if (a == kSplit && b == kSplit && from != to) b = kSplit + 1;
      table.from[from][to] = std::min(prices[a][b].seconds, kNever);
    }
  }
  return table;
}

}  // namespace autopar::rec
