// The hand-written part of Open MPI's binary interface against a real mpi.h, where CMake found one.
// Main entry: tag [mpi].
#include <anello/dist/mpi/abi.h>

#include "catch.h"

#include <cstddef>
#include <type_traits>

#ifdef ANELLO_HAVE_MPI_H
#define OMPI_SKIP_MPICXX 1  // its C++ half would have to be linked
#include <mpi.h>

namespace {

using namespace anello::dist::mpi;

/// Two parameter types that are passed alike: the same, or both pointers (handles are pointers to structs).
template <class Ours, class Theirs>
constexpr bool alike = std::is_same_v<Ours, Theirs> || (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>);

template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class R, class... A, class... B>
requires(sizeof...(A) == sizeof...(B)) struct Same<R (*)(A...), R (*)(B...)>
    : std::bool_constant<(alike<A, B> && ...)> {
};

#define ANELLO_MPI_ROW(name, ...) \
  static_assert(Same<std::add_pointer_t<__VA_ARGS__>, decltype(&MPI_##name)>::value, "MPI_" #name " differs");
ANELLO_MPI_FUNCTIONS(ANELLO_MPI_ROW)
#undef ANELLO_MPI_ROW

static_assert(std::is_pointer_v<MPI_Comm> && std::is_pointer_v<MPI_Datatype> && std::is_pointer_v<MPI_Request>);
static_assert(sizeof(MpiStatus) == sizeof(MPI_Status) && alignof(MpiStatus) == alignof(MPI_Status));
static_assert(offsetof(MpiStatus, source) == offsetof(MPI_Status, MPI_SOURCE));
static_assert(offsetof(MpiStatus, tag) == offsetof(MPI_Status, MPI_TAG));
static_assert(offsetof(MpiStatus, error) == offsetof(MPI_Status, MPI_ERROR));
static_assert(offsetof(MpiStatus, bytes) == offsetof(MPI_Status, _ucount));

}  // namespace

TEST_CASE("the constants of Open MPI's interface are those of its header", "[mpi]") {
  REQUIRE(kSuccess == MPI_SUCCESS);
  REQUIRE(kErrTruncate == MPI_ERR_TRUNCATE);
  REQUIRE(kAnySource == MPI_ANY_SOURCE);
  REQUIRE(kThreadSerialized == MPI_THREAD_SERIALIZED);
  REQUIRE(kThreadMultiple == MPI_THREAD_MULTIPLE);
  REQUIRE(kUndefined == MPI_UNDEFINED);
  REQUIRE(kTextRoom >= MPI_MAX_ERROR_STRING);
}
#else
TEST_CASE("the constants of Open MPI's interface (no mpi.h was found, nothing to compare with)", "[mpi]") {
  WARN("mpi.h was not found. Hint: apt-get install libopenmpi-dev");
  REQUIRE(anello::dist::mpi::kTextRoom > 0);
}
#endif
