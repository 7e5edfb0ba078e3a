// What the templates of Megatron-LM, DeepSpeed and torchtitan speak of, found in a graph by its
// structure: products with a weight, in columns or rows, what lies between them, and what is
// stored.
#pragma once

#include <map>
#include <vector>

#include "autopar/search.hpp"

namespace autopar {

// Tensor parallelism splits a product with a weight in two ways (Shoeybi et al., "Megatron-LM",
// 2019): by columns of the weight, so that the output is split, or by rows, so that the output is a
// partial sum. Rows: the output, perhaps with a bias, is added to a residual.
struct TemplateProduct {
  OpId op;
  int batch_factor = -1;   // of its rule; -1: none
  int weight_factor = -1;  // the one that tensor parallelism splits
  bool in_rows = false;
};

// An input or parameter that a step keeps, by what templates store it as.
struct TemplateStored {
  enum class Kind : std::uint8_t {
    kRead,         // the passes read it: a parameter, or its 16-bit copy
    kState,        // only updates do: a master, an optimizer state
    kAccumulator,  // of gradients
  };
  ValueId value;
  Kind kind = Kind::kRead;
  ValueId of = {};  // what the passes read of the same parameter; invalid: not known
  // Of a product's weight, or of a table of embeddings: the dimension that tensor parallelism
  // splits; -1: it stays whole.
  int tensor_dim = -1;
};

struct TemplateRoles {
  std::vector<TemplateProduct> products;
  std::vector<ValueId> data;      // inputs along the batch
  std::vector<ValueId> gathered;  // activations that column products read
  std::vector<ValueId> sums;      // of a row product and a residual
  std::vector<TemplateStored> stored;
};

// O(values + ops), but for what updates read: O(parameters x ops of one update).
TemplateRoles template_roles(const SearchRequest& request);

}  // namespace autopar
