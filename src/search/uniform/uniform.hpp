// The searcher `uniform`: the plans that Megatron-LM, DeepSpeed and torchtitan can be told to run.
//
// A template says how many devices share a batch's part (tp, tensor parallelism) and into how many
// parts the batch goes (dp), the sequence (cp, context parallelism) and a layer's experts (ep),
// whether the sequence is split between the products (sp; Korthikanti et al., "Reducing Activation
// Recomputation in Large Transformer Models", 2022), and what is stored in parts (ZeRO 0 to 3;
// Rajbhandari et al., "ZeRO", 2019), perhaps over a part of the devices of data parallelism that
// follow each other. It becomes pins on the same graph: of every product with a weight, of what
// lies between them, and of what is stored. All else is searched and priced as ever. A pin of the
// user's comes before that of a template, and `--zero` before its levels.
#pragma once

#include <string>
#include <vector>

#include "autopar/search.hpp"
#include "search/uniform/roles.hpp"

namespace autopar {

struct Template {
  std::int64_t data = 1, tensor = 1;
  int zero = 0;              // 0 to 3
  bool sequence = false;     // split between the products
  std::int64_t group = 0;    // devices over which `zero` splits; 0: all of data and context
  std::int64_t context = 1;  // parts of the sequence, in all of the passes
  std::int64_t expert = 1;   // parts of the experts, of the devices of data parallelism
};
std::string to_text(const Template& wanted);  // "dp=8 tp=8 sp zero=1", "dp=8 tp=8 zero=3/4"
// Reads that back, in any order; a degree that is not there is 1, and `zero` 0. Errors (kUsage):
// another word, one twice, none.
Result<Template> parse_template(const std::string& text);

// The same where what is stored is said by `--zero` (a level) as well: with that level. Errors:
// also a template that says another one.
Result<Template> asked_template(const std::string& text, std::optional<int> zero);

// Degrees of tensor parallelism that the cluster and the products allow, ascending: more than 1
// only where there are products in columns and in rows, of sizes that divide.
std::vector<std::int64_t> tensor_degrees(const SearchRequest& request, const TemplateRoles& roles);
// All of one degree that the batch allows, without context or expert parallelism. Levels of ZeRO
// only where something is stored, and dp > 1; that of `--zero` alone where it is given. On a mesh
// that is given, its outer axes are those of data parallelism, all others those of tensor
// parallelism.
std::vector<Template> templates_of(const SearchRequest& request, const TemplateRoles& roles,
                                   std::int64_t tensor);
// The same with context parallelism in place of data parallelism, by powers of two, ascending; with
// expert parallelism, ascending. Empty: there is no sequence beside the batch, no group of experts.
std::vector<Template> with_context(const SearchRequest& request, const TemplateRoles& roles,
                                   const Template& wanted);
std::vector<Template> with_experts(const SearchRequest& request, const TemplateRoles& roles,
                                   const Template& wanted);

// Errors (kUsage): a batch, sequence or group of experts that is not there, or does not divide.
Status check_template(const SearchRequest& request, const TemplateRoles& roles,
                      const Template& wanted);

// The request with the mesh, pins and rules of a template. Errors (kInput): the cluster's tiers
// have no such mesh, or the mesh that is given no such group.
Result<SearchRequest> as_template(const SearchRequest& request, const TemplateRoles& roles,
                                  const Template& wanted);

// The axes of a template's mesh, outermost first.
struct TemplateAxes {
  AxisList data, context, tensor;
};
TemplateAxes axes_of(const Mesh& mesh, const Template& wanted);

// For such a request: of the candidates of ops that no pin names those in which data parallelism
// splits the batch, where the op has one, and the axes of one kind of parallelism the same; updates
// as the states lie. A search among these is short.
std::shared_ptr<const Narrowing> narrowed_to(const SearchRequest& asked, const TemplateRoles& roles,
                                             const Template& wanted);

// The best template that fits, and all of them beside it, the fastest first; where the request's
// searcher is "uniform:" and the text of a template, that one. Without a bound. Errors (kUsage): a
// template that is none, or of another number of devices.
Result<SearchOutcome> search_uniform(const SearchRequest& request);

}  // namespace autopar
