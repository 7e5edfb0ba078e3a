#include "cli/manual_text.hpp"

namespace autopar::cli {

const std::vector<ManualSection>& sections_before() {
  static const std::vector<ManualSection> sections = {
      {"Description",
       R"(`autopar` reads a model (ONNX, or a small JSON graph) and a description of a cluster, finds how to run the model on all devices of that cluster, and writes a strategy for every operator, the rewritten ONNX graph in which every collective is an explicit node, and a report that says why. It can execute the rewritten graph on all its ranks and compare the result with that of the unsharded model.

The command is the first word that is no option; options may stand before it or after it. A command refuses options that it does not read.)"},
  };
  return sections;
}

const std::vector<ManualSection>& sections_after() {
  static const std::vector<ManualSection> sections = {
      {"Files",
       R"(- `strategy.json`: For every operator the mesh axis that splits each of its loop dimensions, with the split counts of its inputs; for every tensor its layout. Any subset of its operators is a valid input of `--pin` and `--strategy`.
- `plan.onnx`: One program for all ranks. Collectives are nodes of the domain `ai.autopar`.
- `step.json`, `schedule.csv`, `plan.c0.F.onnx`, ...: Of several micro-batches or stages: the programs, which ranks run them, and in which order.
- `train.onnx`: The training step of the whole batch, with which results are compared; `train.F.onnx`, ...: the unsharded passes, where micro-batches are not the batch.
- `rank00000/weights.safetensors`, ...: With `--weights sharded` what each rank reads.
- `plan.stage0.onnx`, `plan.stage1.onnx`, ...: Written by hand instead of `plan.onnx`: one program for each pipeline stage. Its metadata are `autopar.ranks`, a JSON list of its ranks (`[2, 3]`), and `autopar.world_size`, the number of all. `groups` name ranks of all stages. A `Send` and the `Recv` of another stage have the same `groups`, pairs of the rank that sends and the one that receives, with `group_size` 2; a `Send` has an output, its input handed on, and a `Recv` the attributes `shape` and `dtype`. Every stage has an output.
- `report.json`: The costs of the plan, term by term.
- a model with collectives: Operators of the domain `ai.autopar` that somebody wrote into a model need the attributes `groups` and `group_size` (and `axis` or `root`); `seq` and the inputs that order them are filled in, in the order of the file. Without metadata every rank has whole inputs and outputs. They may also be TensorRT's `DistCollective` (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast) or `AllReduce`, `AllGather` and `AllToAll` of ONNX Runtime's domain `com.microsoft`, which run among all ranks; what cannot be said exactly in `ai.autopar` is refused. How many ranks there are and how inputs and outputs lie say the metadata `autopar.world_size`, `autopar.mesh` and `autopar.io`, as in a plan, or a list of files.
- `plan.trt.onnx`, `plan.trt.rank0.onnx`, ..., `plan.trt.json`: The plan in the dialect `trt` (likewise `ort`): one file for all ranks, or one for each set of ranks that run the same, called by its first rank; the JSON file says which ranks run which, and is itself a program for `show`, `price`, `run`, `verify` and `export`.
- a list of files: For ranks whose groups or weights differ, or for what a file does not say, as below. `mesh` and `io` are optional, and as in the metadata; without a mesh its only axis is `ranks`. The files lie beside the list and have the same nodes. They are read as one program: groups are put together, and an initializer that goes by the rank becomes a `ShardSlice` of the parts of all ranks.

    {"format": "autopar-dialect", "version": 1, "world_size": 4,
     "files": [{"file": "a.onnx", "ranks": [0, 2]}, {"file": "b.onnx", "ranks": [1, 3]}],
     "io": {"x": {"shape": [16, 8], "spec": "[{ranks},{}]"},
            "y": {"shape": [16, 8], "spec": "[{ranks},{}]"}}})"},
      {"Signals",
       R"(On the first SIGINT (Ctrl-C) `search` stops and writes the best plan so far with its gap, and `solve` its best answer; a second one kills it.)"},
      {"Exit status",
       R"(- `0`: Success.
- `1`: A comparison failed.
- `2`: Wrong usage.
- `3`: No plan fits, or none surely fits; the tightest constraint is named.
- `4`: Bad or unsupported input, also data that the unsharded model cannot process, and a plan that `verify` finds wrong.
- `5`: A rank or its communication failed.
- `6`: The memory or the disk of this machine does not suffice, or a limit that is set for the program (`ulimit`); nothing half-written is left.
- `70`: A bug of autopar: an internal error that nothing here expects. Please report it.)"},
      {"Examples",
       R"(    autopar search mlp.onnx --cluster dgx-a100-1x8
    autopar show mlp.autopar
    autopar run mlp.autopar
    autopar price mlp.onnx --strategy mlp.autopar/strategy.json --cluster dgx-a100-1x8)"},
  };
  return sections;
}

namespace {

// clang-format off
constexpr ManualSection kCommands[] =
    {
        {"search",
         R"(Finds a plan. Writes `strategy.json`, `plan.onnx` and `report.json` into the folder of `--output` (with `--train` also `train.onnx`; of several passes or stages `step.json`, `schedule.csv` and programs such as `plan.c0.FB.onnx` in place of `plan.onnx`) and prints a table of what the plan costs and why. A plan that lies there already is replaced once the new one is written in whole, which is said on standard error, and stays as it is where the search fails; files that no search has written stay in any case, the model above all, and so do files of an earlier plan that the new one does not have, which are named (but its `step.json`, which goes: a folder that has one is a step).)"},
        {"apply",
         R"(Writes the same files from a given strategy, complete or partial, without a search.)"},
        {"grad",
         R"(Writes the training step that `search --train` plans as a model of its own: the forward pass, the loss, the backward pass and the update, with parameters, states and data as inputs, and the next values of the former as outputs `new.NAME`.)"},
        {"price",
         R"(Prints what a strategy costs, term by term. Without `--strategy` what a program with collectives costs: a plan, a folder of programs, or a model into which somebody wrote operators of the domain `ai.autopar` or another runtime's collectives. Its operators are priced on their local shapes, its collectives by the tiers that their groups cross; rank 0 is the first device. Without `--strategy` the prices are ideal ones: whatever profile a plan was searched with, nothing goes on beside anything else and every operator is a kernel of its own. With messages (`Send`, `Recv`) the time is that of the last rank, each collective starting when all ranks of its group are there.)"},
        {"run",
         R"(Executes a plan on all its ranks and compares its outputs with those of the unsharded model. The last line is `PASSED` or `FAILED`.

Inputs that are not given are made by what reads them: weights by Glorot's rule, data of unit variance, scales and what must be positive round 1, indices over the whole of what they index; other numbers of standard deviation 0.1, other integers 0 and 1.)"},
        {"verify",
         R"(Proves what `run` needs, and runs nothing: every program passes ONNX's checker, every collective's groups hold each rank once, all ranks issue matching collectives in one order and none waits for itself in a circle, inputs and outputs have the shapes of their layouts; and where strategy.json and the model are there, that they are what the plan was made of. The last line is `PASSED` or `FAILED` (exit code 4, with what is wrong and where).)"},
        {"export",
         R"(Writes a plan that is there in the words of another runtime, as `--dialect` of `search` does, or as the settings of a training program (`--as`), with what of it has no word there.)"},
        {"calibrate",
         R"(Times the collectives on all ranks and on parts of them, products of matrices and sums on all ranks at the same time, and writes the cluster file whose latency and bandwidth for each tier of links come nearest to the times, with the peaks and the memory bandwidth that were reached, and what compute loses beside a collective. With `--model` also a profile of the ops of models and their launches. Under a launcher (`--ranks-by mpi`, `nccl`) machines and what lies between them are two tiers; by `nccl` all is timed on the GPU where ONNX Runtime has a CUDA provider, else collectives with copies from host memory and ops on the CPU. Prints measured and fitted times with algorithm and bus bandwidth in the convention of nccl-tests.)"},
        {"fit",
         R"(Reads a table of plans and the times that their steps took, and writes the profile whose predictions come nearest to them: of the numbers that `--only` names those with the least squared logarithms of predicted over measured. All other numbers, and which ops are one kernel, stay as `--profile` has them. Prints predicted and measured times before and after, and what each row is predicted to take by a fit to the other rows.)"},
        {"merge",
         R"(Puts the weights of a plan written with `--weights sharded` together. Ranks that hold the same slice must agree.)"},
        {"reshard-weights",
         R"(Reads the weights of `--from` and writes the ranks' folders for the plan in the folder `--to`. Graph inputs of the plan (weights and optimizer states of a training step) are taken along.)"},
        {"show",
         R"(Prints a readable picture of a file; what it is shows in its content. `show clusters` and `show profiles` list the ready-made ones.)"},
        {"solve",
         R"(Solves a bare search problem and prints the choices; cost and lower bound go to standard error, with `-v` every better cost when it is found. `--json` prints cost, lower bound, memory and seconds too. It stops at the time limit or at an interrupt with the best found by then. Costs of 1e18 and more forbid a choice, or a pair of them.)"},
        {"doctor",
         R"(Says what this program was built with and what the machine has: ONNX Runtime, MPI libraries, GPUs with driver, CUDA runtime and NCCL, what a launcher said, ports, cores and memory; for each that is absent or broken why, and what is then not possible. `-v` adds single facts. The exit code is 0 as long as the program itself works.)"},
        {"manual", R"(Prints this manual.)"},
};
// clang-format on

}  // namespace

std::string about_command(const std::string& name) {
  for (const ManualSection& command : kCommands) {
    if (name == command.title) return command.text;
  }
  return "";
}

}  // namespace autopar::cli
