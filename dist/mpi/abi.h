// The part of Open MPI's binary interface that the plug-in calls, declared by hand: no mpi.h and no MPI at build time.
// Main entry: Mpi, filled from a library's symbols by open_library() (dist/mpi/library.h).
//
// Open MPI 4.x and 5.x share this interface (libmpi.so.40): handles are pointers to structs, predefined handles are the
// addresses of data symbols. tests/cpp/test_dist_mpi_abi.cpp compares all of it with a real mpi.h where there is one.
#pragma once

#include <cstddef>
#include <type_traits>

namespace anello::dist::mpi {

using Handle = void*;  ///< MPI_Comm, MPI_Datatype, MPI_Request, MPI_Errhandler, MPI_Op

struct MpiStatus {
  int source, tag, error;
  int cancelled;
  size_t bytes;
};

inline constexpr int kSuccess = 0;
inline constexpr int kErrTruncate = 15;
inline constexpr int kAnySource = -1;
inline constexpr int kThreadSerialized = 2;
inline constexpr int kThreadMultiple = 3;
inline constexpr int kUndefined = -32766;
inline constexpr int kTextRoom = 256;  ///< MPI_MAX_ERROR_STRING

/// One row a function: its name after MPI_ and its type.
#define ANELLO_MPI_FUNCTIONS(row)                                                                               \
  row(Get_library_version, int(char*, int*)) row(Initialized, int(int*)) row(Finalized, int(int*))              \
      row(Init_thread, int(int*, char***, int, int*)) row(Query_thread, int(int*)) row(Finalize, int())         \
          row(Abort, int(Handle, int)) row(Comm_rank, int(Handle, int*)) row(Comm_size, int(Handle, int*))      \
              row(Comm_dup, int(Handle, Handle*)) row(Comm_split, int(Handle, int, int, Handle*))               \
                  row(Comm_free, int(Handle*)) row(Comm_set_errhandler, int(Handle, Handle))                    \
                      row(Error_string, int(int, char*, int*)) row(Error_class, int(int, int*))                 \
                          row(Isend, int(const void*, int, Handle, int, int, Handle, Handle*))                  \
                              row(Irecv, int(void*, int, Handle, int, int, Handle, Handle*))                    \
                                  row(Ibarrier, int(Handle, Handle*)) row(Test, int(Handle*, int*, MpiStatus*)) \
                                      row(Cancel, int(Handle*)) row(Request_free, int(Handle*))

/// One row a predefined handle: its member and its symbol.
#define ANELLO_MPI_HANDLES(row)                                                                                \
  row(comm_world, ompi_mpi_comm_world) row(comm_null, ompi_mpi_comm_null) row(request_null, ompi_request_null) \
      row(byte, ompi_mpi_byte) row(errors_return, ompi_mpi_errors_return)

/// The functions and handles of one loaded library.
struct Mpi {
#define ANELLO_MPI_ROW(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  ANELLO_MPI_FUNCTIONS(ANELLO_MPI_ROW)
#undef ANELLO_MPI_ROW
#define ANELLO_MPI_ROW(member, symbol) Handle member = nullptr;
  ANELLO_MPI_HANDLES(ANELLO_MPI_ROW)
#undef ANELLO_MPI_ROW
};

}  // namespace anello::dist::mpi
