/* The entries of MPI that are used, as a table of C functions. MPI's own ABI differs between
   libraries, so that each has a small shared library of its own with this table (mpi_shim.cpp),
   opened at run time. All sizes are bytes; errors are texts in `error` (kMpiErrorBytes long). */
#pragma once

#include <stddef.h>

#define AUTOPAR_MPI_TABLE_VERSION 2
#define AUTOPAR_MPI_ERROR_BYTES 512

struct AutoparMpiGroup;   /* a communicator of a group of ranks */
struct AutoparMpiRequest; /* an operation under way */

struct AutoparMpiTable {
  int version;
  const char* (*library)(void); /* name and version of the MPI library */
  /* Initialises MPI. Returns 0, or 1 with a text in error. */
  int (*start)(int* rank, int* size, char* error);
  int (*local_size)(void); /* how many ranks run on this machine; 0: not known. Collective. */
  /* Of the world; blocks. */
  int (*broadcast_world)(void* data, size_t size, int root, char* error);
  /* Collective over the group's ranks only, in the given order. Null: an error. */
  struct AutoparMpiGroup* (*make_group)(const int* ranks, int count, int tag, char* error);
  /* Start operations; null: an error. Each part has part_size bytes; buffers must live until
     test() says that the request is done. */
  struct AutoparMpiRequest* (*all_to_all)(struct AutoparMpiGroup*, const void* send, void* receive,
                                          size_t part_size, char* error);
  struct AutoparMpiRequest* (*all_gather)(struct AutoparMpiGroup*, const void* send, void* receive,
                                          size_t part_size, char* error);
  struct AutoparMpiRequest* (*broadcast)(struct AutoparMpiGroup*, void* data, size_t size, int root,
                                         char* error);
  struct AutoparMpiRequest* (*send)(int to, const void* data, size_t size, int tag, char* error);
  struct AutoparMpiRequest* (*receive)(int from, void* data, size_t size, int tag, char* error);
  /* 1: done, and the request is gone; 0: not yet; -1: an error, and the request is gone. */
  int (*test)(struct AutoparMpiRequest*, char* error);
  void (*finish)(void); /* MPI_Finalize; all ranks */
  void (*stop)(int code); /* MPI_Abort: ends all ranks, the launcher too, with this exit code */
};

#ifdef __cplusplus
extern "C"
#endif
    const struct AutoparMpiTable*
    autopar_mpi_table(void);
