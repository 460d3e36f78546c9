// Errors of the framework: one base, a few kinds, one form: "[op] what is wrong, with both values. Hint: the next
// step." Main entry: check<Kind>(condition, "op", parts...), which formats its parts only when the condition is false.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace anello {

/// Base of all errors the framework raises (Python: RuntimeError).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// An argument has a value that cannot be used (Python: ValueError).
class ValueError : public Error {
 public:
  using Error::Error;
};
/// Shapes, sizes or dims that do not fit (Python: ValueError).
class ShapeError : public ValueError {
 public:
  using ValueError::ValueError;
};
/// An index outside its dim (Python: IndexError).
class IndexError : public Error {
 public:
  using Error::Error;
};
/// A dtype that is wrong for the operation, or has no kernel (Python: TypeError).
class DTypeError : public Error {
 public:
  using Error::Error;
};
/// A device that is absent or does not match (Python: RuntimeError).
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A failure between ranks (Python: RuntimeError).
class DistError : public Error {
 public:
  using Error::Error;
};
/// A file that is missing, truncated, malformed or not writable (Python: OSError).
class IoError : public Error {
 public:
  using Error::Error;
};
/// Memory that the allocator could not get (Python: MemoryError).
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

/// Concatenates its arguments with operator<<.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Raises Kind with the message "[op] parts...".
template <class Kind = Error, class... Parts>
[[noreturn]] void fail(std::string_view op, const Parts&... parts) {
  throw Kind(concat('[', op, "] ", parts...));
}

/// Raises Kind with the message "[op] parts..." unless ok.
template <class Kind = Error, class... Parts>
inline void check(bool ok, std::string_view op, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail<Kind>(op, parts...);
}

}  // namespace anello
