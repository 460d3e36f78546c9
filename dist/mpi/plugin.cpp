// libanello_mpi.so: messages between processes through Open MPI, behind a table of C functions.
// Main entry: anello_plugin(). Nothing here waits inside MPI, whose waits spin: it tests, and naps between tests.
#include <anello/dist/mpi/library.h>
#include <anello/dist/mpi/plugin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace anello::dist::mpi {

class Group {
 public:
  Handle messages = nullptr, control = nullptr;
  int rank = 0, size = 1;

  /// A message goes in pieces, for MPI counts bytes in an int.
  struct Slot {
    std::vector<Handle> pieces;
    std::vector<size_t> sizes;  ///< expected, of a receive; else empty
    bool live = false;
  };
  std::vector<Slot> slots;
  std::vector<uint64_t> free_slots;

  struct Outgoing {
    std::string text;
    Handle request = nullptr;
  };
  std::list<Outgoing> outgoing;  ///< control messages whose copies are still being read
  std::vector<char> incoming;
  Handle incoming_request = nullptr;
};

namespace {

constexpr size_t kControlRoom = 4096;
constexpr int kControlTag = 0;

struct State {
  const Mpi* mpi = nullptr;
  bool ours = false;       ///< MPI_Init was called here
  bool serialized = true;  ///< MPI allows one thread at a time: every call under the lock
  bool finished = false;
  size_t piece = size_t{1} << 30;
  std::recursive_mutex mutex;
  Group* world = nullptr;
};
State& state() {
  static auto* const instance = new State;
  return *instance;
}

/// Holds the lock where MPI needs it.
class Turn {
 public:
  Turn() {
    if (state().serialized) lock_ = std::unique_lock(state().mutex);
  }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

const char* remember(std::string text) {
  thread_local std::string last;
  last = std::move(text);
  return last.c_str();
}

/// null, or what MPI says about the code.
const char* outcome(const char* call, int code) {
  if (code == kSuccess) return nullptr;
  char text[kTextRoom] = "";
  int length = 0;
  state().mpi->Error_string(code, text, &length);
  return remember(std::string(call) + " failed: " + text);
}

void nap(int round) {
  if (round < 50) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(20 * (round - 49), 2000)));
}

void copy_text(char* to, size_t room, const std::string& text) { std::snprintf(to, room, "%s", text.c_str()); }

const char* find(LibraryInfo* info) {
  const Library& library = open_library();
  copy_text(info->path, sizeof info->path, library.path);
  copy_text(info->version, sizeof info->version, library.version);
  copy_text(info->looked, sizeof info->looked, library.looked);
  return library.error.empty() ? nullptr : library.error.c_str();
}

/// Makes the two communicators of a group: errors are returned, not fatal, and control messages never meet others.
const char* make_group(Handle comm, bool duplicate, Group** group) {
  const Mpi& mpi = *state().mpi;
  auto made = std::make_unique<Group>();
  made->messages = comm;
  mpi.Comm_set_errhandler(comm, mpi.errors_return);
  if (duplicate)
    if (const char* wrong = outcome("MPI_Comm_dup", mpi.Comm_dup(comm, &made->messages))) return wrong;
  if (const char* wrong = outcome("MPI_Comm_dup", mpi.Comm_dup(comm, &made->control))) return wrong;
  for (Handle c : {made->messages, made->control}) mpi.Comm_set_errhandler(c, mpi.errors_return);
  mpi.Comm_rank(made->messages, &made->rank);
  mpi.Comm_size(made->messages, &made->size);
  *group = made.release();
  return nullptr;
}

const char* open(Group** world) {
  State& s = state();
  if (s.mpi == nullptr) {
    const Library& library = open_library();
    if (!library.error.empty()) return library.error.c_str();
    s.mpi = &library.mpi;
    if (const char* piece = std::getenv("ANELLO_MPI_PIECE"); piece != nullptr)  // for tests: messages in many pieces
      s.piece = std::clamp<size_t>(std::strtoull(piece, nullptr, 10), 1, size_t{1} << 30);
    int started = 0, level = 0;
    s.mpi->Initialized(&started);
    if (started != 0) {
      s.mpi->Query_thread(&level);
    } else {
      // Errors here are fatal whatever one asks for; MPI says why on standard error.
      if (const int code = s.mpi->Init_thread(nullptr, nullptr, kThreadMultiple, &level); code != kSuccess) {
        s.mpi = nullptr;
        return remember("MPI_Init_thread failed with code " + std::to_string(code));
      }
      s.ours = true;
    }
    if (level < kThreadSerialized) {
      s.mpi = nullptr;
      return remember(
          "this MPI was started for one thread only. Hint: let Anello start it, or MPI_Init_thread with "
          "MPI_THREAD_MULTIPLE");
    }
    s.serialized = level != kThreadMultiple;
  }
  if (s.finished) return remember("MPI has been ended in this process and cannot start twice");
  const Turn turn;
  const char* wrong = make_group(s.mpi->comm_world, true, world);
  if (wrong == nullptr) s.world = *world;
  return wrong;
}

int rank(const Group* group) { return group->rank; }
int size(const Group* group) { return group->size; }

const char* split(Group* group, int color, int key, Group** part) {
  const Mpi& mpi = *state().mpi;
  *part = nullptr;
  Handle arrived = nullptr;
  const char* wrong = nullptr;
  {
    const Turn turn;
    wrong = outcome("MPI_Ibarrier", mpi.Ibarrier(group->control, &arrived));
  }
  for (int done = 0, round = 0; wrong == nullptr && done == 0; ++round) {
    {
      const Turn turn;
      MpiStatus status;
      wrong = outcome("MPI_Ibarrier", mpi.Test(&arrived, &done, &status));
    }
    if (done == 0) nap(round);
  }
  if (wrong != nullptr) return wrong;
  const Turn turn;  // all are here: what spins now spins shortly
  Handle comm = nullptr;
  wrong = outcome("MPI_Comm_split", mpi.Comm_split(group->messages, color < 0 ? kUndefined : color, key, &comm));
  if (wrong != nullptr || comm == mpi.comm_null) return wrong;
  return make_group(comm, false, part);
}

void close(Group* group) {
  State& s = state();
  const Turn turn;
  if (s.world == group) s.world = nullptr;
  int finalized = 0;
  s.mpi->Finalized(&finalized);
  if (finalized == 0) {
    // Communicators are freed by MPI_Finalize: MPI_Comm_free is collective, and peers may be gone.
    if (group->incoming_request != nullptr) {
      s.mpi->Cancel(&group->incoming_request);
      MpiStatus status;
      int done = 0;
      s.mpi->Test(&group->incoming_request, &done, &status);
      if (done == 0) (void)new std::vector<char>(std::move(group->incoming));  // MPI may still write there
    }
    for (auto& message : group->outgoing) (void)new std::string(std::move(message.text));
  }
  delete group;
}

uint64_t take_slot(Group* group) {
  if (group->free_slots.empty()) {
    group->slots.emplace_back();
    return group->slots.size();
  }
  const uint64_t request = group->free_slots.back();
  group->free_slots.pop_back();
  return request;
}

void release_slot(Group* group, uint64_t request) {
  Group::Slot& slot = group->slots[request - 1];
  slot.pieces.clear();
  slot.sizes.clear();
  slot.live = false;
  group->free_slots.push_back(request);
}

/// Calls f(offset, length) for each piece of a message; an empty message is one empty piece.
template <class F>
const char* for_pieces(size_t bytes, const F& f) {
  size_t offset = 0;
  do {
    const size_t length = std::min(bytes - offset, state().piece);
    if (const char* wrong = f(offset, length)) return wrong;
    offset += length;
  } while (offset < bytes);
  return nullptr;
}

/// Starts the pieces of a message: start(offset, length, piece) calls MPI. A receive takes note of what it expects.
template <class F>
const char* start_message(Group* group, size_t bytes, bool receives, uint64_t* request, const F& start) {
  const Turn turn;
  *request = take_slot(group);
  Group::Slot& slot = group->slots[*request - 1];
  slot.live = true;
  return for_pieces(bytes, [&](size_t offset, size_t length) {
    Handle piece = nullptr;
    const char* wrong = start(offset, static_cast<int>(length), &piece);
    if (wrong != nullptr) return wrong;
    slot.pieces.push_back(piece);
    if (receives) slot.sizes.push_back(length);
    return wrong;
  });
}

int mpi_tag(uint32_t tag) { return static_cast<int>(tag & 0x7fffffffu); }

const char* send(Group* group, int to, uint32_t tag, const void* data, size_t bytes, uint64_t* request) {
  const Mpi& mpi = *state().mpi;
  return start_message(group, bytes, false, request, [&](size_t offset, int length, Handle* piece) {
    return outcome("MPI_Isend", mpi.Isend(static_cast<const char*>(data) + offset, length, mpi.byte, to, mpi_tag(tag),
                                          group->messages, piece));
  });
}

const char* receive(Group* group, int from, uint32_t tag, void* data, size_t bytes, uint64_t* request) {
  const Mpi& mpi = *state().mpi;
  return start_message(group, bytes, true, request, [&](size_t offset, int length, Handle* piece) {
    return outcome("MPI_Irecv", mpi.Irecv(static_cast<char*>(data) + offset, length, mpi.byte, from, mpi_tag(tag),
                                          group->messages, piece));
  });
}

const char* test(Group* group, uint64_t request, int* done) {
  const Mpi& mpi = *state().mpi;
  const Turn turn;
  Group::Slot& slot = group->slots[request - 1];
  *done = 0;
  while (!slot.pieces.empty()) {
    MpiStatus status;
    int arrived = 0;
    const int code = mpi.Test(&slot.pieces.back(), &arrived, &status);
    if (code != kSuccess) {
      int kind = 0;
      mpi.Error_class(code, &kind);
      if (kind == kErrTruncate)
        return remember("a longer message arrived than the " + std::to_string(slot.sizes.back()) + " bytes expected");
      return outcome("MPI_Test", code);
    }
    if (arrived == 0) return nullptr;
    if (!slot.sizes.empty()) {
      if (status.bytes != slot.sizes.back())
        return remember("a message of " + std::to_string(status.bytes) + " bytes arrived where " +
                        std::to_string(slot.sizes.back()) + " were expected");
      slot.sizes.pop_back();
    }
    slot.pieces.pop_back();
  }
  release_slot(group, request);
  *done = 1;
  return nullptr;
}

void cancel(Group* group, uint64_t request) {
  const Mpi& mpi = *state().mpi;
  const Turn turn;
  Group::Slot& slot = group->slots[request - 1];
  for (Handle& piece : slot.pieces) {
    if (piece == mpi.request_null) continue;
    MpiStatus status;
    int done = 0;
    if (!slot.sizes.empty()) mpi.Cancel(&piece);  // Open MPI cancels receives only
    for (int round = 0; done == 0 && round < 100; ++round) {
      if (mpi.Test(&piece, &done, &status) != kSuccess) break;
      if (done == 0) nap(round);
    }
    if (done == 0 && piece != mpi.request_null) mpi.Request_free(&piece);
  }
  release_slot(group, request);
}

void sweep_outgoing(Group* group) {
  for (auto message = group->outgoing.begin(); message != group->outgoing.end();) {
    MpiStatus status;
    int done = 0;
    const int code = state().mpi->Test(&message->request, &done, &status);
    message = done != 0 || code != kSuccess ? group->outgoing.erase(message) : std::next(message);
  }
}

const char* send_control(Group* group, int to, const char* data, size_t bytes) {
  const Mpi& mpi = *state().mpi;
  const Turn turn;
  sweep_outgoing(group);
  Group::Outgoing& message = group->outgoing.emplace_back();
  message.text.assign(data, std::min(bytes, kControlRoom));
  const char* wrong = outcome("MPI_Isend", mpi.Isend(message.text.data(), static_cast<int>(message.text.size()),
                                                     mpi.byte, to, kControlTag, group->control, &message.request));
  if (wrong != nullptr) group->outgoing.pop_back();
  return wrong;
}

const char* receive_control(Group* group, char* data, size_t room, size_t* bytes, int* from) {
  const Mpi& mpi = *state().mpi;
  const Turn turn;
  *from = -1;
  if (!group->outgoing.empty()) sweep_outgoing(group);
  if (group->incoming_request == nullptr) {
    group->incoming.resize(kControlRoom);
    if (const char* wrong = outcome("MPI_Irecv", mpi.Irecv(group->incoming.data(), kControlRoom, mpi.byte, kAnySource,
                                                           kControlTag, group->control, &group->incoming_request)))
      return wrong;
  }
  MpiStatus status;
  int done = 0;
  const char* wrong = outcome("MPI_Test", mpi.Test(&group->incoming_request, &done, &status));
  if (wrong != nullptr || done == 0) return wrong;
  group->incoming_request = nullptr;
  *bytes = std::min(status.bytes, room);
  *from = status.source;
  std::memcpy(data, group->incoming.data(), *bytes);
  return nullptr;
}

void finish() {
  State& s = state();
  if (s.mpi == nullptr || !s.ours || s.finished) return;
  s.finished = true;
  int finalized = 0;
  s.mpi->Finalized(&finalized);
  if (finalized != 0) return;
  Group* group = s.world;
  if (group == nullptr && make_group(s.mpi->comm_world, false, &group) != nullptr) return;
  // A peer that has failed never comes, and MPI_Finalize would wait for it: one that complains instead ends the wait.
  Handle arrived = nullptr;
  if (s.mpi->Ibarrier(group->messages, &arrived) != kSuccess) return;
  std::vector<char> text(kControlRoom);
  for (int round = 0;; ++round) {
    const Turn turn;
    MpiStatus status;
    int done = 0, from = -1;
    size_t bytes = 0;
    if (s.mpi->Test(&arrived, &done, &status) != kSuccess) return;
    if (done != 0) break;
    if (receive_control(group, text.data(), text.size(), &bytes, &from) != nullptr || from >= 0) return;
    nap(round);
  }
  s.mpi->Finalize();
}

void abort(int code) {
  State& s = state();
  if (s.mpi != nullptr) s.mpi->Abort(s.mpi->comm_world, code);
}

}  // namespace
}  // namespace anello::dist::mpi

extern "C" __attribute__((visibility("default"))) const anello::dist::mpi::MpiPlugin* anello_plugin(uint32_t version) {
  using namespace anello::dist::mpi;
  static constexpr MpiPlugin table{
      kMpiPluginVersion, find,   open, rank, size, split, close, send, receive, test, cancel, send_control,
      receive_control,   finish, abort};
  return version == kMpiPluginVersion ? &table : nullptr;
}
