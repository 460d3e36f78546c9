// Tensors as text.
// Main entry: to_string(tensor).
#include <anello/core/tensor.h>

#include <cmath>
#include <cstdio>
#include <ostream>

namespace anello {
namespace {

constexpr int64_t kShortenBeyond = 1000;  // elements
constexpr int64_t kEdge = 3;              // entries kept at each end of a dim

/// One number format for all elements: enough digits to tell them apart, an exponent only when the range needs it.
struct Format {
  bool integer = true, exponent = false;

  static Format of(const std::vector<double>& values) {
    Format f;
    double largest = 0, smallest = INFINITY;
    for (double v : values) {
      if (!std::isfinite(v)) continue;
      f.integer = f.integer && v == std::floor(v) && std::fabs(v) < 1e7;
      largest = std::max(largest, std::fabs(v));
      if (v != 0) smallest = std::min(smallest, std::fabs(v));
    }
    f.exponent = !f.integer && (largest >= 1e5 || smallest < 1e-4);
    return f;
  }
  std::string operator()(double v) const {
    char text[64];
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    std::snprintf(text, sizeof text, integer ? "%.0f." : exponent ? "%.4e" : "%.4f", v);
    return text;
  }
};

class Printer {
 public:
  explicit Printer(const Tensor& t) : tensor_(t), shorten_(t.numel() > kShortenBeyond) {
    if (is_floating_point(t.dtype()) && t.numel() > 0) {
      collect(0, t.storage_offset());
      format_ = Format::of(values_);
    }
  }
  std::string text() {
    std::string out = "tensor(";
    if (tensor_.numel() == 0)
      out += "[]";
    else
      write(out, 0, tensor_.storage_offset());
    if (tensor_.numel() == 0) out += concat(", shape=", tensor_.shape());
    if (tensor_.dtype() != float32) out += concat(", dtype=", tensor_.dtype());
    if (tensor_.device().type != DeviceType::cpu) out += concat(", device='", tensor_.device(), "'");
    if (tensor_.requires_grad()) out += ", requires_grad=True";
    return out + ")";
  }

 private:
  template <class F>
  void entries(int dim, const F& f) {
    const int64_t n = tensor_.shape()[dim];
    for (int64_t i = 0; i < n; ++i) {
      const bool skip = shorten_ && n > 2 * kEdge && i == kEdge;
      if (skip) i = n - kEdge;
      f(i, skip);
    }
  }
  Tensor element(int64_t offset) const { return as_strided(tensor_, {}, {}, offset); }
  void collect(int dim, int64_t offset) {
    if (dim == tensor_.dim()) {
      values_.push_back(element(offset).item<double>());
      return;
    }
    entries(dim, [&](int64_t i, bool) { collect(dim + 1, offset + i * tensor_.strides()[dim]); });
  }
  void write(std::string& out, int dim, int64_t offset) {
    if (dim == tensor_.dim()) {
      const Tensor e = element(offset);
      if (is_floating_point(e.dtype()))
        out += format_(e.item<double>());
      else if (e.dtype() == bool_)
        out += e.item<int64_t>() ? "True" : "False";
      else
        out += std::to_string(e.item<int64_t>());
      return;
    }
    out += '[';
    bool first = true;
    entries(dim, [&](int64_t i, bool skipped) {
      const std::string separator =
          dim + 1 == tensor_.dim()
              ? ", "
              : "," + std::string(static_cast<size_t>(tensor_.dim() - dim - 1), '\n') + indent(dim);
      if (!first) out += separator;
      if (skipped) out += "..." + separator;
      first = false;
      write(out, dim + 1, offset + i * tensor_.strides()[dim]);
    });
    out += ']';
  }
  static std::string indent(int dim) { return std::string(static_cast<size_t>(dim) + 8, ' '); }

  Tensor tensor_;
  bool shorten_;
  std::vector<double> values_;
  Format format_;
};

}  // namespace

std::string to_string(const Tensor& tensor) { return tensor.defined() ? Printer(tensor).text() : "tensor(undefined)"; }

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }

}  // namespace anello
