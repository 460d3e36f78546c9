// The border between Python's lock and C++ threads: references let go without it, Ctrl-C inside long work.
// Main entry: release_soon(), install_interrupt_check().
#include "python_object.h"

#include <anello/core/interrupt.h>

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace anello::python {
namespace {

bool interpreter_is_gone() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

/// References that threads without the GIL let go of.
struct Waiting {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  bool announced = false;
};
Waiting& waiting() {
  static auto* const instance = new Waiting;  // never destroyed: threads may still let go at exit
  return *instance;
}

int release_waiting(void*) {
  std::vector<PyObject*> objects;
  {
    Waiting& w = waiting();
    const std::lock_guard lock(w.mutex);
    objects.swap(w.objects);
    w.announced = false;
  }
  for (PyObject* object : objects) Py_DECREF(object);
  return 0;
}

std::thread::id main_thread;

void check_signals() {
  // Python runs signal handlers in its main thread only; the others need not stop for the lock.
  if (std::this_thread::get_id() != main_thread || interpreter_is_gone()) return;
  const GilAcquire gil;
  if (PyErr_CheckSignals() == 0) return;
  ++interrupt_count();
  throw py::error_already_set();
}

}  // namespace

std::atomic<uint64_t>& interrupt_count() {
  static std::atomic<uint64_t> count{0};
  return count;
}

void hang() noexcept {
  for (;;) pause();
}

void release_soon(PyObject* object) noexcept {
  if (object == nullptr || interpreter_is_gone()) return;
  if (PyGILState_Check() != 0) {
    Py_DECREF(object);
    return;
  }
  Waiting& w = waiting();
  const std::lock_guard lock(w.mutex);
  try {
    w.objects.push_back(object);
  } catch (...) {
    return;  // no memory to remember it: leaked, which harms nobody
  }
  // One pending call serves all that gather until it runs. The queue of pending calls may be full: the next try wins.
  if (!w.announced) w.announced = Py_AddPendingCall(release_waiting, nullptr) == 0;
}

void install_interrupt_check() {
  const py::object threading = py::module_::import("threading");
  const auto here = threading.attr("get_ident")().cast<unsigned long>();
  const auto main = threading.attr("main_thread")().attr("ident").cast<unsigned long>();
  if (here != main) return;  // imported from another thread: Ctrl-C waits for the work to end
  main_thread = std::this_thread::get_id();
  set_interrupt_check(check_signals);
}

}  // namespace anello::python
