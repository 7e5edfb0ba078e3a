// The table of mpi_table.h on one MPI library. Compiled once per library against its headers.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <vector>

#include "exec/mpi/mpi_table.h"

struct AutoparMpiGroup {
  MPI_Comm communicator = MPI_COMM_NULL;
};

struct AutoparMpiRequest {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Datatype part = MPI_DATATYPE_NULL;  // to be freed with it; null: a predefined one
};

namespace {

bool started_here = false;

bool failed(int code, const char* what, char* error) {
  if (code == MPI_SUCCESS) return false;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::snprintf(error, AUTOPAR_MPI_ERROR_BYTES, "%s: %.400s", what, text);
  return true;
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

int start(int* rank, int* size, char* error) {
  int given = 0;
  int running = 0;  // in a Python program mpi4py may have come first
  MPI_Initialized(&running);
  started_here = running == 0;
  if (running == 0 &&
      failed(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init", error)) {
    return 1;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (failed(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank", error)) return 1;
  return failed(MPI_Comm_size(MPI_COMM_WORLD, size), "MPI_Comm_size", error) ? 1 : 0;
}

int local_size() {
  MPI_Comm machine = MPI_COMM_NULL;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) !=
      MPI_SUCCESS) {
    return 0;
  }
  int here = 0;
  MPI_Comm_size(machine, &here);
  MPI_Comm_free(&machine);
  return here;
}

int broadcast_world(void* data, size_t size, int root, char* error) {
  const int code = MPI_Bcast(data, static_cast<int>(size), MPI_BYTE, root, MPI_COMM_WORLD);
  return failed(code, "MPI_Bcast", error) ? 1 : 0;
}

AutoparMpiGroup* make_group(const int* ranks, int count, int tag, char* error) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  if (failed(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group", error)) return nullptr;
  if (failed(MPI_Group_incl(world, count, ranks, &group), "MPI_Group_incl", error)) return nullptr;
  auto made = new AutoparMpiGroup;
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made->communicator);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  if (failed(code, "MPI_Comm_create_group", error)) {
    delete made;
    return nullptr;
  }
  MPI_Comm_set_errhandler(made->communicator, MPI_ERRORS_RETURN);
  return made;
}

// MPI counts in int: a longer part is one element of a type of its own, whole blocks and a rest.
struct Part {
  MPI_Datatype type = MPI_BYTE;
  int count = 0;
  bool own = false;
};

bool make_part(size_t size, Part& part, char* error) {
  constexpr size_t kBlock = size_t{1} << 20;
  if (size <= INT_MAX) {
    part.count = static_cast<int>(size);
    return true;
  }
  MPI_Datatype block = MPI_DATATYPE_NULL;
  if (failed(MPI_Type_contiguous(static_cast<int>(kBlock), MPI_BYTE, &block), "MPI_Type", error)) {
    return false;
  }
  int counts[2] = {static_cast<int>(size / kBlock), static_cast<int>(size % kBlock)};
  MPI_Aint offsets[2] = {0, static_cast<MPI_Aint>(size - size % kBlock)};
  MPI_Datatype types[2] = {block, MPI_BYTE};
  int code = MPI_Type_create_struct(2, counts, offsets, types, &part.type);
  if (code == MPI_SUCCESS) code = MPI_Type_commit(&part.type);
  MPI_Type_free(&block);
  part.count = 1;
  part.own = true;
  return !failed(code, "MPI_Type_create_struct", error);
}

// Starts what `operation` starts, given the part and where the request goes.
template <class Operation>
AutoparMpiRequest* begin(size_t size, const char* what, char* error, const Operation& operation) {
  Part part;
  if (!make_part(size, part, error)) return nullptr;
  auto request = new AutoparMpiRequest;
  if (part.own) request->part = part.type;
  if (!failed(operation(part, &request->request), what, error)) return request;
  delete request;
  return nullptr;
}

AutoparMpiRequest* all_to_all(AutoparMpiGroup* group, const void* send, void* receive,
                              size_t part_size, char* error) {
  return begin(part_size, "MPI_Ialltoall", error, [&](const Part& part, MPI_Request* request) {
    return MPI_Ialltoall(send, part.count, part.type, receive, part.count, part.type,
                         group->communicator, request);
  });
}

AutoparMpiRequest* all_gather(AutoparMpiGroup* group, const void* send, void* receive,
                              size_t part_size, char* error) {
  return begin(part_size, "MPI_Iallgather", error, [&](const Part& part, MPI_Request* request) {
    return MPI_Iallgather(send, part.count, part.type, receive, part.count, part.type,
                          group->communicator, request);
  });
}

AutoparMpiRequest* broadcast(AutoparMpiGroup* group, void* data, size_t size, int root,
                             char* error) {
  return begin(size, "MPI_Ibcast", error, [&](const Part& part, MPI_Request* request) {
    return MPI_Ibcast(data, part.count, part.type, root, group->communicator, request);
  });
}

// Synchronous, so that a program which needs no more than NCCL promises is all that runs here.
AutoparMpiRequest* send(int to, const void* data, size_t size, int tag, char* error) {
  return begin(size, "MPI_Issend", error, [&](const Part& part, MPI_Request* request) {
    return MPI_Issend(data, part.count, part.type, to, tag, MPI_COMM_WORLD, request);
  });
}

AutoparMpiRequest* receive(int from, void* data, size_t size, int tag, char* error) {
  return begin(size, "MPI_Irecv", error, [&](const Part& part, MPI_Request* request) {
    return MPI_Irecv(data, part.count, part.type, from, tag, MPI_COMM_WORLD, request);
  });
}

int test(AutoparMpiRequest* request, char* error) {
  int done = 0;
  const int code = MPI_Test(&request->request, &done, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS && done == 0) return 0;
  if (request->part != MPI_DATATYPE_NULL) MPI_Type_free(&request->part);
  delete request;
  return failed(code, "MPI_Test", error) ? -1 : 1;
}

void finish() {
  if (started_here) MPI_Finalize();
}

void stop(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

constexpr AutoparMpiTable kTable = {
    AUTOPAR_MPI_TABLE_VERSION,
    library,
    start,
    local_size,
    broadcast_world,
    make_group,
    all_to_all,
    all_gather,
    broadcast,
    send,
    receive,
    test,
    finish,
    stop,
};

}  // namespace

extern "C" const AutoparMpiTable* autopar_mpi_table(void) { return &kTable; }
