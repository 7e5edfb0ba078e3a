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
// Context parallelism splits what of the rows of a product is no batch: the sequence.
struct TemplateProduct {
  OpId op;
  int batch_factor = -1;     // of its rule; -1: none
  int sequence_factor = -1;  // -1: its rows are the batch alone, or batch and sequence are one
  int weight_factor =
      -1;  // the one that tensor parallelism splits; -1: of a router, which is whole
  bool in_rows = false;
};

// Of experts: a product of a group of weights, [experts, ., .], with as many parts of the tokens.
// Expert parallelism (Lepikhin et al., "GShard", 2021) splits the group.
struct TemplateExperts {
  OpId op;
  int batch_factor = -1;
  int expert_factor = -1;
  int token_factor = -1;   // the tokens of an expert; -1: that is no one factor
  int weight_factor = -1;  // the one that tensor parallelism splits; -1 likewise
};
// Sends tokens to experts, or gets them back: a product of two activations, along the batch.
struct TemplateRoute {
  OpId op;
  int batch_factor = -1;
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
  bool is_of_experts = false;  // dimension 0 are experts
};

struct TemplateRoles {
  std::vector<TemplateProduct> products;
  std::vector<TemplateExperts> experts;
  std::vector<TemplateRoute> routes;
  std::vector<ValueId> data;      // inputs along the batch
  std::vector<ValueId> handed;    // of these, such as a chunk gets of others: like `sums`
  std::vector<ValueId> gathered;  // activations that column products read
  std::vector<ValueId> sums;      // of a row product and a residual
  std::vector<TemplateStored> stored;
};

// O(values + ops), but for what updates read: O(parameters x ops of one update).
TemplateRoles template_roles(const SearchRequest& request);

}  // namespace autopar
