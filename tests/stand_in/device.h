/* What the two stand-in libraries share beyond the entries of the real ones, and what tests ask. */
#pragma once

#include "exec/nccl/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Host memory behind [pointer, pointer + bytes) where that lies in one allocation that has not been
   freed; null elsewhere. `device` may be null. */
void* stand_in_memory(const void* pointer, size_t bytes, int* device);
/* That of the calling thread. */
int stand_in_current_device(void);
/* The device of a stream, -1 for what is none (any more). */
int stand_in_device_of(cudaStream_t stream);
/* Puts a task on the stream; false where it is no stream. */
int stand_in_enqueue(cudaStream_t stream, void (*task)(void*), void* argument);
/* Until `why` is null again, whoever uses the stream (or any, from this thread) misuses it. */
void stand_in_hold_stream(cudaStream_t stream, const char* why);
void stand_in_hold_thread(const char* why);
/* Notes a misuse: on stderr, for the error strings of this thread, and for stand_in_misuse(). */
void stand_in_note_misuse(const char* text);
/* All misuses so far, one per line; the text lives until the thread's next call. */
const char* stand_in_misuse(void);
void stand_in_forget_misuse(void);
/* Allocations, streams and events that have not been given back. */
int stand_in_live(void);

#ifdef __cplusplus
}
#endif
