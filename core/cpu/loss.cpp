// Cross-entropy from logits or log-probabilities, forward and backward, one row at a time.
// Main entry: the registrations at the end.
#include <anello/core/cpu/lanes.h>
#include <anello/core/kernels/loss.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace anello::kernel {
namespace {

/// Elements a task works on, about.
constexpr int64_t kTask = 16384;

/// The target with its types filled in.
template <class T>
struct Target {
  using A = ComputeOf<T>;
  const int64_t* labels;
  const T* probabilities;
  const A* weight;
  int64_t classes, ignore_index;
  A keep;    ///< 1 - smoothing
  A spread;  ///< smoothing / classes
  A weight_sum = 0;

  Target(const CrossEntropyTarget& t, int64_t class_count)
      : labels(t.labels),
        probabilities(static_cast<const T*>(t.probabilities)),
        weight(static_cast<const A*>(t.class_weight)),
        classes(class_count),
        ignore_index(t.ignore_index),
        keep(static_cast<A>(1 - t.smoothing)),
        spread(class_count == 0 ? A(0) : static_cast<A>(t.smoothing / static_cast<double>(class_count))) {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += static_cast<double>(class_weight(c));
    weight_sum = static_cast<A>(sum);
  }
  A class_weight(int64_t c) const { return weight == nullptr ? A(1) : weight[c]; }
  Lanes<A> weights(int64_t i, int64_t m) const {
    return weight == nullptr ? splat(A(1)) : load_part(weight + i, m, A(0));
  }
  bool counts(int64_t row) const { return labels == nullptr || labels[row] != ignore_index; }
  /// What each class of a row weighs, without the label's own share; p: the row's probabilities.
  Lanes<A> shares(const A* p, int64_t i, int64_t m) const {
    const Lanes<A> w = weights(i, m);
    return p == nullptr ? w * spread : w * (load_part(p + i, m, A(0)) * keep + spread);
  }
};

template <class T>
Status check_labels(const Context& ctx, const Target<T>& target, int64_t rows) {
  if (target.labels == nullptr) return Status::ok;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = target.labels[i];
    if ((label >= 0 && label < target.classes) || label == target.ignore_index) continue;
    return ctx.error(
        Status::index_error,
        "label %lld at row %lld is outside [0, %lld). Hint: labels count from 0; set ignore_index to skip rows.",
        static_cast<long long>(label), static_cast<long long>(i), static_cast<long long>(target.classes));
  }
  return Status::ok;
}

/// -log p of a row as offset - x[c]: `top` is subtracted first, so that a small log sum is not lost beside it.
template <class A>
struct RowStats {
  A top, log_sum;
};
template <class A>
RowStats<A> row_stats(const A* x, int64_t n) {
  constexpr A kLow = -std::numeric_limits<A>::infinity();
  Lanes<A> best = splat(kLow), sums{};
  for_lanes<A>(n, [&](int64_t i, int64_t m) { best = max_lanes(best, load_part(x + i, m, kLow)); });
  const A top = max_lane(best);
  for_lanes<A>(n, [&](int64_t i, int64_t m) { sums += exp_lanes<A>(load_part(x + i, m, kLow) - top); });
  return {top, std::log(sum_lanes(sums))};
}

template <class T, class A>
A row_loss(const Target<T>& target, const A* x, const A* p, int64_t row, RowStats<A> stats) {
  A loss = 0;
  if (p != nullptr || target.spread != 0) {
    Lanes<A> sums{};
    for_lanes<A>(target.classes, [&](int64_t i, int64_t m) {
      const Lanes<A> q = target.shares(p, i, m), minus_log = (stats.top - load_part(x + i, m, A(0))) + stats.log_sum;
      Lanes<A> term = q != A(0) ? q * minus_log : splat(A(0));
      if (m < kLanes<A>) {  // the lanes past the end stand for no class
        for (int64_t k = m; k < kLanes<A>; ++k) term[k] = 0;
      }
      sums += term;
    });
    loss = sum_lanes(sums);
  }
  if (target.labels != nullptr) {
    const int64_t y = target.labels[row];
    const A q = target.keep * target.class_weight(y);
    if (q != 0) loss += q * ((stats.top - x[y]) + stats.log_sum);
  }
  return loss;
}

/// Room for a row of x and a row of probabilities in the compute type.
template <class T>
class RowReader {
 public:
  using A = ComputeOf<T>;
  RowReader(const Context& ctx, int64_t classes, bool two)
      : classes_(classes), buffer_(ctx, std::is_same_v<A, T> ? 0 : classes * (two ? 2 : 1)) {}
  const A* x(const void* data, int64_t row) const { return read(data, row, buffer_.data()); }
  const A* probabilities(const T* data, int64_t row) const {
    return data == nullptr ? nullptr : read(data, row, buffer_.data() + classes_);
  }

 private:
  const A* read(const void* data, int64_t row, A* buffer) const {
    return load(static_cast<const T*>(data) + row * classes_, dtype_of<T>, classes_, 1, buffer);
  }
  int64_t classes_;
  Scratch<A> buffer_;
};

template <class T>
Status cross_entropy_kernel(const Context& ctx, const CrossEntropyParams& p) {
  using A = ComputeOf<T>;
  const Target<T> target(p.target, p.classes);
  if (const Status status = check_labels(ctx, target, p.rows); status != Status::ok) return status;
  A* stats_out = static_cast<A*>(p.row_stats);
  T* loss_out = static_cast<T*>(p.loss);
  const int64_t grain = std::max<int64_t>(1, kTask / std::max<int64_t>(1, p.classes));
  struct Partial {
    double loss = 0, weight = 0;
  };
  std::vector<Partial> partial(static_cast<size_t>((p.rows + grain - 1) / grain));
  ctx.parallel_for(p.rows, grain, [&](int64_t begin, int64_t end) {
    const RowReader<T> reader(ctx, p.classes, target.probabilities != nullptr);
    Partial sum;
    for (int64_t i = begin; i < end; ++i) {
      RowStats<A> stats{0, 0};
      A loss = 0;
      const A* x = reader.x(p.x, i);
      if (p.from_logits) {
        stats = row_stats(x, p.classes);
        stats_out[2 * i] = stats.top;
        stats_out[2 * i + 1] = stats.log_sum;
      }
      if (target.counts(i)) {
        loss = row_loss(target, x, reader.probabilities(target.probabilities, i), i, stats);
        sum.loss += static_cast<double>(loss);
        sum.weight += target.labels == nullptr ? 1 : static_cast<double>(target.class_weight(target.labels[i]));
      }
      if (p.reduce == CrossEntropyParams::Reduce::none) loss_out[i] = convert<T>(loss);
    }
    partial[static_cast<size_t>(begin / grain)] = sum;
  });
  Partial total;
  for (const Partial& part : partial) total.loss += part.loss, total.weight += part.weight;
  const double divisor = p.reduce == CrossEntropyParams::Reduce::mean ? total.weight : 1;
  *static_cast<A*>(p.divisor) = static_cast<A>(divisor);
  if (p.reduce != CrossEntropyParams::Reduce::none) {
    *loss_out = convert<T>(divisor == 0 ? 0.0 : total.loss / divisor);
  }
  return Status::ok;
}

/// dx = g (softmax sum q - q) of one row.
template <class T, class A>
void row_grad(const Target<T>& target, bool from_logits, const A* x, const A* p, int64_t row, RowStats<A> stats, A g,
              A* dx) {
  const int64_t n = target.classes;
  const int64_t label = target.labels != nullptr ? target.labels[row] : -1;
  const A own = label >= 0 ? target.keep * target.class_weight(label) : A(0);
  A total = 0;
  if (from_logits && p == nullptr) total = own + target.spread * target.weight_sum;
  if (from_logits && p != nullptr) {
    Lanes<A> sums{};
    for_lanes<A>(n, [&](int64_t i, int64_t m) {
      Lanes<A> q = target.shares(p, i, m);
      for (int64_t k = m; k < kLanes<A>; ++k) q[k] = 0;
      sums += q;
    });
    total = sum_lanes(sums);
  }
  for_lanes<A>(n, [&](int64_t i, int64_t m) {
    const Lanes<A> q = target.shares(p, i, m);
    if (from_logits) {
      const Lanes<A> e = exp_lanes<A>((load_part(x + i, m, A(0)) - stats.top) - stats.log_sum);
      store_part(dx + i, m, (e * total - q) * g);
    } else {
      store_part(dx + i, m, q * -g);
    }
  });
  if (label >= 0) dx[label] -= own * g;
}

template <class T>
Status cross_entropy_grad_kernel(const Context& ctx, const CrossEntropyGradParams& p) {
  using A = ComputeOf<T>;
  const Target<T> target(p.target, p.classes);
  if (const Status status = check_labels(ctx, target, p.rows); status != Status::ok) return status;
  const A divisor = *static_cast<const A*>(p.divisor);
  const A* stats_in = static_cast<const A*>(p.row_stats);
  const T* dloss = static_cast<const T*>(p.dloss);
  const int64_t grain = std::max<int64_t>(1, kTask / std::max<int64_t>(1, p.classes));
  ctx.parallel_for(p.rows, grain, [&](int64_t begin, int64_t end) {
    const RowReader<T> reader(ctx, p.classes, target.probabilities != nullptr);
    const Scratch<A> result(ctx, std::is_same_v<A, T> ? 0 : p.classes);
    for (int64_t i = begin; i < end; ++i) {
      T* out = static_cast<T*>(p.dx) + i * p.classes;
      const A g = divisor == 0 ? A(0) : convert<A>(dloss[p.per_row ? i : 0]) / divisor;
      if (!target.counts(i) || divisor == 0) {
        std::fill_n(out, p.classes, convert<T>(0.0f));
        continue;
      }
      A* dx = kernel::target(out, dtype_of<T>, 1, result.data());
      const RowStats<A> stats = p.from_logits ? RowStats<A>{stats_in[2 * i], stats_in[2 * i + 1]} : RowStats<A>{0, 0};
      row_grad(target, p.from_logits, reader.x(p.x, i), reader.probabilities(target.probabilities, i), i, stats, g, dx);
      store(out, dtype_of<T>, p.classes, 1, dx);
    }
  });
  return Status::ok;
}

#define ANELLO_LOSS_KERNELS(T)                                          \
  ANELLO_KERNEL(kCrossEntropy, cross_entropy_kernel<T>, {dtype_of<T>}); \
  ANELLO_KERNEL(kNllLoss, cross_entropy_kernel<T>, {dtype_of<T>});      \
  ANELLO_KERNEL(kCrossEntropyGrad, cross_entropy_grad_kernel<T>, {dtype_of<T>});
ANELLO_LOSS_KERNELS(Float16)
ANELLO_LOSS_KERNELS(BFloat16)
ANELLO_LOSS_KERNELS(float)
ANELLO_LOSS_KERNELS(double)

}  // namespace
}  // namespace anello::kernel
