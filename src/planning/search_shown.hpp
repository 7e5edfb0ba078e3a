// A search as the user sees it: how far it is, what became of each mesh, and its problem in a file.
#pragma once

#include "autopar/recompute.hpp"
#include "autopar/search.hpp"
#include "planning/plan_options.hpp"

namespace autopar {

// search(), with a line of progress on a terminal, what became of each mesh with -v, and what each
// stage did with --trace. Errors as of search().
Result<SearchOutcome> search_shown(SearchRequest& request, const CommonOptions& common);

// What the lines of --trace that follow are of.
void tell_of_form(std::int64_t passes, Recompute recompute);

// The search problem of one mesh, as a bare problem, in a file. Errors: of building or writing it.
Status dump_problem(const std::string& path, const SearchRequest& request, const Mesh& mesh,
                    const std::string& model);

}  // namespace autopar
