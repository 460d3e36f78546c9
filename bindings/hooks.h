// A Python object that hangs on a C++ one: held for it, and known to the garbage collector.
// Main entry: Attached.
#pragma once

#include "python_object.h"

namespace anello::python {

/// Holds `object` on behalf of `owner` (a TensorImpl or a Node), which must not outlive it. May go on any thread.
class Attached {
 public:
  Attached(const void* owner, const py::object& object);
  ~Attached();
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  /// Needs the GIL.
  py::object get() const { return object_.get(); }

 private:
  const void* owner_;
  SharedObject object_;
  PyObject* raw_;
};

}  // namespace anello::python
