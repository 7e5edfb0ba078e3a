// The order in which meshes are searched, and how far: all get a first look, then the most
// promising one is searched, and the others where their bound is below the best plan; further
// rounds of more effort follow where more was asked for.
//
//   MeshSearch search(request, searcher, meshes_of(request));
//   AUTOPAR_RETURN_IF_ERROR(search_meshes(search));
//   search.best, search.outcome.strategy
#pragma once

#include "search/mesh_search.hpp"

namespace autopar {

// Errors: a bug of an op's rule; pins that a mesh cannot keep are none, the mesh's trial says so.
Status search_meshes(MeshSearch& search);

// Whether bounds without the memory limit show that no plan on any mesh is below the request's
// cutoff: those of the ops by themselves, then those of first looks. Ends at the first mesh of
// which they do not, and then says nothing about those after it. Errors as of search_meshes().
Result<bool> none_is_cheaper(MeshSearch& search);

}  // namespace autopar
