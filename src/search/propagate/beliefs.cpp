#include "search/propagate/beliefs.hpp"

#include <algorithm>
#include <cmath>

#include "search/propagate/at.hpp"

namespace autopar {

namespace {

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace

bool clearly_less(double a, double b) {
  if (std::isinf(b)) return !std::isinf(a);
  return a < b - 1e-12 * std::max(std::abs(a), std::abs(b));
}

Beliefs::Beliefs(const Graph& graph, const MeshProblem& problem)
    : graph_(graph), mesh_problem_(problem), problem_(problem.problem) {
  const std::size_t nodes = problem_.nodes.size();
  incident_.resize(nodes);
  choices_.assign(nodes, -1);
  settled_.resize(nodes);
  value_of_node_.resize(nodes);
  least_of_hub_.resize(nodes);
  open_readers_.assign(nodes, 0);
  for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
    const ProblemEdge& edge = problem_.edges[e];
    if (edge.cost_table < 0) continue;
    incident_[at(edge.from)].push_back({static_cast<int>(e), edge.to, true});
    incident_[at(edge.to)].push_back({static_cast<int>(e), edge.from, false});
  }
  // Stored specs first: the output of an update is the stored spec of the input that it updates.
  for (const auto* nodes_of : {&problem.source_node, &problem.hub_node, &problem.output_node}) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const int node = (*nodes_of)[v];
      if (node < 0 || value_of_node_[at(node)].valid()) continue;
      value_of_node_[at(node)] = ValueId(static_cast<std::int64_t>(v));
      settled_[at(node)].assign(choice_count(node), 0.0);
    }
  }
  note_readers();
}

bool Beliefs::is_op(int node) const { return mesh_problem_.op_of_node[at(node)].valid(); }

std::size_t Beliefs::choice_count(int node) const { return problem_.nodes[at(node)].cost.size(); }

bool Beliefs::decided(OpId op) const { return choice(op) >= 0; }

int Beliefs::choice(OpId op) const { return choices_[at(mesh_problem_.node_of_op[op.index()])]; }

const CostTable& Beliefs::table_of(const Incident& incident) const {
  return problem_.tables[at(problem_.edges[at(incident.edge)].cost_table)];
}

double Beliefs::price(const Incident& incident, int own, int other) const {
  const CostTable& table = table_of(incident);
  return incident.is_from ? table.at(own, other) : table.at(other, own);
}

// Whether a candidate needs an unreduced input of what node `from` supplies.
bool Beliefs::reads_partial(int op_node, int from, int choice) const {
  const OpId id = mesh_problem_.op_of_node[at(op_node)];
  const Op& op = graph_.op(id);
  const OpSpecs& specs = mesh_problem_.choices_of_op[id.index()]->specs[at(choice)];
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i) || specs.inputs[i].partial.empty()) continue;
    const bool supplies =
        is_op(from) ? graph_.value(op.inputs[i]).producer == mesh_problem_.op_of_node[at(from)]
                    : op.inputs[i] == value_of_node_[at(from)];
    if (supplies) return true;
  }
  return false;
}

// Whether what node `from` supplies to an op is unreduced.
bool Beliefs::leaves_partial(int from, int op_node, int choice) const {
  if (!is_op(from)) return !mesh_problem_.specs_of_node[at(from)][at(choice)].partial.empty();
  const OpId id = mesh_problem_.op_of_node[at(from)];
  const Op& producer = graph_.op(id);
  const Op& reader = graph_.op(mesh_problem_.op_of_node[at(op_node)]);
  const OpSpecs& specs = mesh_problem_.choices_of_op[id.index()]->specs[at(choice)];
  for (std::size_t j = 0; j < producer.outputs.size(); ++j) {
    if (!producer.has_output(j) || specs.outputs[j].partial.empty()) continue;
    const auto& inputs = reader.inputs;
    if (std::find(inputs.begin(), inputs.end(), producer.outputs[j]) != inputs.end()) return true;
  }
  return false;
}

// Edges with one table have the same specs at both ends, so they share the answer.
const std::vector<double>& Beliefs::least_of(int edge_index) {
  const ProblemEdge& edge = problem_.edges[at(edge_index)];
  const auto [it, inserted] = least_of_table_.try_emplace(edge.cost_table);
  if (!inserted) return it->second;
  const CostTable& table = problem_.tables[at(edge.cost_table)];
  it->second.assign(at(table.rows), kInfinity);
  for (int column = 0; column < table.columns; ++column) {
    if (reads_partial(edge.to, edge.from, column)) continue;
    for (int row = 0; row < table.rows; ++row) {
      it->second[at(row)] = std::min(it->second[at(row)], table.at(row, column));
    }
  }
  return it->second;
}

void Beliefs::note_readers() {
  for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
    const ProblemEdge& edge = problem_.edges[e];
    if (edge.cost_table < 0 || !is_op(edge.to)) continue;
    const std::vector<double>& least = least_of(static_cast<int>(e));
    if (is_op(edge.from)) continue;
    ++open_readers_[at(edge.from)];
    std::vector<double>& of_hub = least_of_hub_[at(edge.from)];
    of_hub.resize(least.size(), 0.0);
    for (std::size_t row = 0; row < least.size(); ++row) {
      of_hub[row] = std::max(of_hub[row], least[row]);
    }
  }
}

// Per choice of a value node the least that decided ops pay, all other value nodes of its tree (but
// the branch of `without`) chosen best.
std::vector<double> Beliefs::belief(int node, int without) const {
  std::vector<double> sum = settled_[at(node)];
  for (const Incident& incident : incident_[at(node)]) {
    if (is_op(incident.other) || incident.other == without) continue;
    const std::vector<double> beyond = belief(incident.other, node);
    for (std::size_t own = 0; own < sum.size(); ++own) {
      double best = kInfinity;
      for (std::size_t other = 0; other < beyond.size(); ++other) {
        best = std::min(
            best, beyond[other] + price(incident, static_cast<int>(own), static_cast<int>(other)));
      }
      sum[own] += best;
    }
  }
  return sum;
}

void Beliefs::add_op_end(const Incident& incident, Prices& prices) const {
  const int decided = choices_[at(incident.other)];
  if (decided < 0 && !incident.is_from) return;
  for (std::size_t c = 0; c < prices.now.size(); ++c) {
    const int own = static_cast<int>(c);
    if (decided >= 0) {
      const double seconds = price(incident, own, decided);
      prices.now[c] += seconds;
      prices.ahead[c] += seconds;
      continue;
    }
    const ProblemEdge& edge = problem_.edges[at(incident.edge)];
    const double seconds = least_of_table_.at(edge.cost_table)[c];
    if (leaves_partial(edge.from, edge.to, own)) prices.now[c] += seconds;
    prices.ahead[c] += seconds;
  }
}

void Beliefs::add_value_end(const Incident& incident, Prices& prices) const {
  const int node = incident.other;
  std::vector<double> now = belief(node, -1);
  const bool reads_it = !incident.is_from;
  const bool others_read = open_readers_[at(node)] - (reads_it ? 1 : 0) > 0;
  if (!others_read) {
    const std::vector<double> added = added_to(incident, now, prices.now.size());
    for (std::size_t c = 0; c < added.size(); ++c) {
      prices.now[c] += added[c];
      prices.ahead[c] += added[c];
    }
    return;
  }
  std::vector<double> ahead = now;
  const auto& specs = mesh_problem_.specs_of_node[at(node)];
  for (std::size_t h = 0; h < now.size(); ++h) {
    if (!specs[h].partial.empty()) now[h] += least_of_hub_[at(node)][h];
    ahead[h] += least_of_hub_[at(node)][h];
  }
  const std::vector<double> added_now = added_to(incident, now, prices.now.size());
  const std::vector<double> added_ahead = added_to(incident, ahead, prices.now.size());
  for (std::size_t c = 0; c < added_now.size(); ++c) {
    prices.now[c] += added_now[c];
    prices.ahead[c] += added_ahead[c];
  }
}

static std::vector<double> least_by_class(const std::vector<double>& values,
                                          const std::vector<int>& classes) {
  const int count = *std::max_element(classes.begin(), classes.end()) + 1;
  std::vector<double> least(at(count), kInfinity);
  for (std::size_t i = 0; i < values.size(); ++i) {
    least[at(classes[i])] = std::min(least[at(classes[i])], values[i]);
  }
  return least;
}

// By how much each candidate raises the least of a value's node.
std::vector<double> Beliefs::added_to(const Incident& incident, const std::vector<double>& have,
                                      std::size_t candidates) const {
  const CostTable& table = table_of(incident);
  const double before = least(have);
  std::vector<double> added(candidates, kInfinity);
  if (!table.row_class.empty()) {
    const std::vector<double> least_of_class =
        least_by_class(have, incident.is_from ? table.column_class : table.row_class);
    const std::vector<int>& classes = incident.is_from ? table.row_class : table.column_class;
    const auto columns = at(table.column_classes);
    for (std::size_t c = 0; c < candidates; ++c) {
      const std::size_t own = at(classes[c]);
      for (std::size_t k = 0; k < least_of_class.size(); ++k) {
        const double price = table.values[incident.is_from ? own * columns + k : k * columns + own];
        added[c] = std::min(added[c], least_of_class[k] + price);
      }
      if (!std::isinf(before)) added[c] -= before;
    }
    return added;
  }
  for (std::size_t c = 0; c < candidates; ++c) {
    const double* prices = table.values.data() + (incident.is_from ? c * have.size() : c);
    const std::size_t step = incident.is_from ? 1 : candidates;
    for (std::size_t h = 0; h < have.size(); ++h, prices += step) {
      added[c] = std::min(added[c], have[h] + *prices);
    }
    if (!std::isinf(before)) added[c] -= before;
  }
  return added;
}

Beliefs::Prices Beliefs::prices(OpId op) const {
  const int node = mesh_problem_.node_of_op[op.index()];
  Prices prices;
  prices.now.assign(choice_count(node), 0.0);
  prices.ahead = prices.now;
  for (const Incident& incident : incident_[at(node)]) {
    if (is_op(incident.other)) {
      add_op_end(incident, prices);
    } else {
      add_value_end(incident, prices);
    }
  }
  return prices;
}

void Beliefs::decide(OpId op, int choice) {
  const int node = mesh_problem_.node_of_op[op.index()];
  choices_[at(node)] = choice;
  for (const Incident& incident : incident_[at(node)]) {
    if (is_op(incident.other)) continue;
    std::vector<double>& settled = settled_[at(incident.other)];
    for (std::size_t h = 0; h < settled.size(); ++h) {
      settled[h] += price(incident, choice, static_cast<int>(h));
    }
    if (!incident.is_from) --open_readers_[at(incident.other)];
  }
}

void Beliefs::choose(int node, int parent) {
  std::vector<double> sum = belief(node, parent);
  for (const Incident& incident : incident_[at(node)]) {
    if (incident.other != parent) continue;
    for (std::size_t own = 0; own < sum.size(); ++own) {
      sum[own] += price(incident, static_cast<int>(own), choices_[at(parent)]);
    }
  }
  std::size_t best = 0;
  for (std::size_t c = 1; c < sum.size(); ++c) {
    if (clearly_less(sum[c], sum[best])) best = c;
  }
  choices_[at(node)] = static_cast<int>(best);
  for (const Incident& incident : incident_[at(node)]) {
    if (!is_op(incident.other) && choices_[at(incident.other)] < 0) choose(incident.other, node);
  }
}

std::vector<int> Beliefs::complete() {
  for (std::size_t n = 0; n < choices_.size(); ++n) {
    if (choices_[n] < 0) choose(static_cast<int>(n), -1);
  }
  return choices_;
}

}  // namespace autopar
