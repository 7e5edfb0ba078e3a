#include "solve/windows/contract.hpp"

#include <algorithm>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::contract;

// The best path from a frontier before the stretch to one after a layer of it.
struct Path {
  int from = 0;
  int label = 0;   // in the last layer
  int before = 0;  // the path up to there; its number in the layer before
  Units value = 0;
};

struct Reached {
  std::vector<Path> paths;          // by the frontier they lead to
  std::vector<std::size_t> begins;  // per frontier, and the end
};

class Contraction {
 public:
  Contraction(Trellis& trellis, Budget& budget) : trellis_(trellis), budget_(budget) {}

  void run() {
    std::vector<TrellisLayer> layers;
    for (std::size_t i = 0; i < trellis_.layers.size();) {
      std::size_t end = i + 1;
      if (trellis_.layers[i].uses.empty()) end = best_end(i);
      if (end == i + 1) {
        layers.push_back(std::move(trellis_.layers[i]));
      } else {
        layers.push_back(joined(i, end));
      }
      i = end;
    }
    trellis_.layers = std::move(layers);
  }

 private:
  // Follows all paths from layer i on. Where to end for the fewest arcs per node.
  std::size_t best_end(std::size_t i) {
    reached_.clear();
    std::size_t best = i + 1;
    double fewest = static_cast<double>(trellis_.layers[i].arcs.size());
    for (std::size_t k = i; k < trellis_.layers.size() && trellis_.layers[k].uses.empty(); ++k) {
      if (!follow(i, k)) break;
      const double arcs = static_cast<double>(reached_.back().paths.size());
      const double per_node = arcs / static_cast<double>(k + 1 - i);
      if (k > i && per_node > fewest) continue;
      fewest = per_node;
      best = k + 1;
    }
    return best;
  }

  bool follow(std::size_t i, std::size_t k) {
    const TrellisLayer& first = trellis_.layers[i];
    const TrellisLayer& layer = trellis_.layers[k];
    std::vector<int> known(first.least.size(), -1);
    Reached next;
    next.begins = {0};
    double work = 0;
    for (std::size_t to = 0; to < layer.frontiers(); ++to) {
      const std::size_t begin = next.paths.size();
      const auto offer = [&](const Path& path) {
        if (first.least[at(path.from)] + path.value + layer.to_go[to] >= trellis_.room) return;
        int& its = known[at(path.from)];
        if (its < static_cast<int>(begin)) {
          its = static_cast<int>(next.paths.size());
          next.paths.push_back(path);
        } else if (path.value < next.paths[at(its)].value) {
          next.paths[at(its)] = path;
        }
      };
      for (std::size_t a = layer.begins[to]; a < layer.begins[to + 1]; ++a) {
        const TrellisArc& arc = layer.arcs[a];
        if (k == i) {
          offer({arc.from, arc.label, -1, arc.value});
          continue;
        }
        const Reached& before = reached_.back();
        const std::size_t end = before.begins[at(arc.from) + 1];
        for (std::size_t p = before.begins[at(arc.from)]; p < end; ++p) {
          const Path& path = before.paths[p];
          offer({path.from, arc.label, static_cast<int>(p), path.value + arc.value});
        }
        work += static_cast<double>(end - before.begins[at(arc.from)]);
      }
      next.begins.push_back(next.paths.size());
    }
    budget_.add(work);
    if (static_cast<double>(next.paths.size()) > kMostPaths) return false;
    reached_.push_back(std::move(next));
    return true;
  }

  TrellisLayer joined(std::size_t i, std::size_t end) {
    const TrellisLayer& last = trellis_.layers[end - 1];
    TrellisLayer layer;
    for (std::size_t k = i; k < end; ++k) layer.nodes.push_back(trellis_.layers[k].nodes[0]);
    layer.least = trellis_.layers[i].least;
    layer.to_go = last.to_go;
    layer.begins = {0};
    const Reached& all = reached_[end - 1 - i];
    for (std::size_t to = 0; to < last.frontiers(); ++to) {
      for (std::size_t p = all.begins[to]; p < all.begins[to + 1]; ++p) {
        const Path& path = all.paths[p];
        const int number = static_cast<int>(layer.arcs.size());
        layer.arcs.push_back({path.from, static_cast<int>(to), number, path.value, path.value});
        layer.labels.resize(layer.labels.size() + layer.nodes.size());
        int at_path = static_cast<int>(p);
        for (std::size_t k = end - i; k-- > 0;) {
          const Path& part = reached_[k].paths[at(at_path)];
          layer.labels[at(number) * layer.nodes.size() + k] = part.label;
          at_path = part.before;
        }
      }
      layer.begins.push_back(layer.arcs.size());
    }
    return layer;
  }

  Trellis& trellis_;
  Budget& budget_;
  std::vector<Reached> reached_;  // per layer of the stretch
};

}  // namespace

void contract(Trellis& trellis, Budget& budget) { Contraction(trellis, budget).run(); }

}  // namespace autopar::solver
