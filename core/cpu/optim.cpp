// Fused optimizer updates over a list of parameters: one pass over memory, in float32 (float64 for float64).
// Main entry: the registrations at the end.
#include <anello/core/cpu/lanes.h>
#include <anello/core/kernels/optim.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace anello::kernel {
namespace {

/// Elements that are converted and updated at a time; three such buffers stay in the first-level cache.
constexpr int64_t kBlock = 1024;
/// Elements a task works on.
constexpr int64_t kTask = 32 * kBlock;

/// Calls f(tensor, begin, end) for all elements of all tensors in pieces of at most kBlock, in parallel. The tensors
/// count as one long array, so that many small ones do not become many small tasks.
template <class F>
void for_each_block(const Context& ctx, const OptimTensor* tensors, int64_t tensor_count, const F& f) {
  std::vector<int64_t> start(static_cast<size_t>(tensor_count) + 1, 0);
  for (int64_t i = 0; i < tensor_count; ++i) {
    start[static_cast<size_t>(i) + 1] = start[static_cast<size_t>(i)] + tensors[i].count;
  }
  ctx.parallel_for(start.back(), kTask, [&](int64_t begin, int64_t end) {
    int64_t t = std::upper_bound(start.begin(), start.end(), begin) - start.begin() - 1;
    for (int64_t at = begin; at < end; ++t) {
      const int64_t first = start[static_cast<size_t>(t)], last = std::min(end, start[static_cast<size_t>(t) + 1]);
      for (; at < last; at = std::min(at + kBlock, last))
        f(tensors[t], at - first, std::min(at + kBlock, last) - first);
    }
  });
}

/// Calls update(tensor, p, g, begin, n) with the parameter's values (written back) and the other array's as A.
template <class T, class F>
void update_all(const Context& ctx, const OptimTensor* tensors, int64_t tensor_count, DType grad_dtype,
                const F& update) {
  using A = ComputeOf<T>;
  for_each_block(ctx, tensors, tensor_count, [&](const OptimTensor& t, int64_t begin, int64_t end) {
    alignas(64) A param_buffer[kBlock], grad_buffer[kBlock];
    const int64_t n = end - begin;
    const A* g = load(element(t.grad, grad_dtype, begin), grad_dtype, n, 1, grad_buffer);
    T* param = static_cast<T*>(t.param) + begin;
    A* p = target(param, dtype_of<T>, 1, param_buffer);
    if constexpr (!std::is_same_v<A, T>) convert_run(p, param, n);
    update(t, p, g, begin, n);
    store(param, dtype_of<T>, n, 1, p);
  });
}

Status check_grad_dtype(const Context& ctx, DType dtype) {
  if (is_floating_point(dtype)) return Status::ok;
  return ctx.error(Status::dtype_error, "gradients must be floating point");
}

template <class T>
Status sgd_kernel(const Context& ctx, const SgdParams& params) {
  using A = ComputeOf<T>;
  if (const Status s = check_grad_dtype(ctx, params.grad_dtype); s != Status::ok) return s;
  const A sign = params.maximize ? A(-1) : A(1), decay = static_cast<A>(params.weight_decay),
          lr = static_cast<A>(params.lr);
  const A momentum = static_cast<A>(params.momentum), fresh = static_cast<A>(1 - params.dampening);
  const auto update = [&](const OptimTensor& t, A* __restrict p, const A* __restrict grad, int64_t begin, int64_t n) {
    if (params.momentum == 0) {
      for (int64_t i = 0; i < n; ++i) p[i] -= lr * (sign * grad[i] + decay * p[i]);
      return;
    }
    A* __restrict v = static_cast<A*>(t.state[0]) + begin;
    // The first update takes the gradient undamped, and what is in v does not count.
    if (t.step == 1) std::fill_n(v, n, A(0));
    const A share = t.step == 1 ? A(1) : fresh;
    if (params.nesterov) {
      for (int64_t i = 0; i < n; ++i) {
        const A g = sign * grad[i] + decay * p[i];
        v[i] = momentum * v[i] + share * g;
        p[i] -= lr * (g + momentum * v[i]);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        v[i] = momentum * v[i] + share * (sign * grad[i] + decay * p[i]);
        p[i] -= lr * v[i];
      }
    }
  };
  update_all<T>(ctx, params.tensors, params.tensor_count, params.grad_dtype, update);
  return Status::ok;
}

/// The numbers of an Adam step, in the type it is computed in.
template <class A>
struct AdamStep {
  A sign, decay, keep, beta1, rest1, beta2, rest2, eps;
  A rate = 0, correction = 0;  ///< lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
};

template <bool kMax, class A>
void adam_run(const AdamStep<A>& s, A* __restrict p, const A* __restrict grad, A* __restrict m, A* __restrict v,
              A* __restrict u, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const A g = s.sign * grad[i] + s.decay * p[i];
    const A mean = s.beta1 * m[i] + s.rest1 * g, square = s.beta2 * v[i] + s.rest2 * g * g;
    m[i] = mean;
    v[i] = square;
    A scale = square;
    if constexpr (kMax) {
      scale = square > u[i] ? square : u[i];
      u[i] = scale;
    }
    p[i] = s.keep * p[i] - s.rate * mean / (std::sqrt(scale) * s.correction + s.eps);
  }
}

template <class T>
Status adam_kernel(const Context& ctx, const AdamParams& params) {
  using A = ComputeOf<T>;
  if (const Status s = check_grad_dtype(ctx, params.grad_dtype); s != Status::ok) return s;
  const auto number = [](double value) { return static_cast<A>(value); };
  const AdamStep<A> common{number(params.maximize ? -1 : 1),
                           number(params.decoupled ? 0 : params.weight_decay),
                           number(params.decoupled ? 1 - params.lr * params.weight_decay : 1),
                           number(params.beta1),
                           number(1 - params.beta1),
                           number(params.beta2),
                           number(1 - params.beta2),
                           number(params.eps)};
  const auto update = [&](const OptimTensor& t, A* p, const A* grad, int64_t begin, int64_t n) {
    const double step = static_cast<double>(t.step);
    AdamStep<A> s = common;
    s.rate = number(params.lr / (1 - std::pow(params.beta1, step)));
    s.correction = number(1 / std::sqrt(1 - std::pow(params.beta2, step)));
    A *m = static_cast<A*>(t.state[0]) + begin, *v = static_cast<A*>(t.state[1]) + begin;
    if (params.amsgrad)
      adam_run<true>(s, p, grad, m, v, static_cast<A*>(t.state[2]) + begin, n);
    else
      adam_run<false>(s, p, grad, m, v, static_cast<A*>(nullptr), n);
  };
  update_all<T>(ctx, params.tensors, params.tensor_count, params.grad_dtype, update);
  return Status::ok;
}

template <class T>
Status lerp_kernel(const Context& ctx, const LerpParams& params) {
  using A = ComputeOf<T>;
  if (const Status s = check_grad_dtype(ctx, params.source_dtype); s != Status::ok) return s;
  // From the nearer end, so that weight 1 gives the source exactly.
  const bool near_source = params.weight >= 0.5;
  const A weight = static_cast<A>(params.weight), rest = static_cast<A>(1 - params.weight);
  const auto update = [&](const OptimTensor&, A* __restrict p, const A* __restrict source, int64_t, int64_t n) {
    if (near_source) {
      for (int64_t i = 0; i < n; ++i) p[i] = source[i] - rest * (source[i] - p[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) p[i] += weight * (source[i] - p[i]);
    }
  };
  update_all<T>(ctx, params.tensors, params.tensor_count, params.source_dtype, update);
  return Status::ok;
}

/// Sum of squares of n values in float64, where no square of a float32 overflows.
template <class A>
double sum_of_squares(const A* x, int64_t n) {
  constexpr int kUnroll = 4, kStep = kUnroll * kLanes<double>;
  DoubleLanes sums[kUnroll] = {};
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (int k = 0; k < kUnroll; ++k) {
      const DoubleLanes v = load_double(x + i + k * kLanes<double>);
      sums[k] += v * v;
    }
  }
  double total = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

template <class T>
Status sum_squares_kernel(const Context& ctx, const SumSquaresParams& params) {
  using A = ComputeOf<T>;
  struct Piece {
    int64_t tensor, begin, end;
  };
  std::vector<Piece> pieces;
  for (int64_t t = 0; t < params.tensor_count; ++t) {
    for (int64_t at = 0; at < params.tensors[t].count; at += kTask) {
      pieces.push_back({t, at, std::min(at + kTask, params.tensors[t].count)});
    }
  }
  std::vector<double> sums(pieces.size());
  ctx.parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    alignas(64) A buffer[kBlock];
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      double sum = 0;
      for (int64_t at = piece.begin; at < piece.end; at += kBlock) {
        const int64_t n = std::min(kBlock, piece.end - at);
        const T* values = static_cast<const T*>(params.tensors[piece.tensor].grad) + at;
        sum += sum_of_squares(load(values, dtype_of<T>, n, 1, buffer), n);
      }
      sums[static_cast<size_t>(i)] = sum;
    }
  });
  std::fill_n(params.out, params.tensor_count, 0.0);
  for (size_t i = 0; i < pieces.size(); ++i) params.out[pieces[i].tensor] += sums[i];
  return Status::ok;
}

template <class T>
Status scale_kernel(const Context& ctx, const ScaleParams& params) {
  using A = ComputeOf<T>;
  const A factor = static_cast<A>(params.factor);
  for_each_block(ctx, params.tensors, params.tensor_count, [&](const OptimTensor& t, int64_t begin, int64_t end) {
    alignas(64) A buffer[kBlock];
    T* values = static_cast<T*>(t.param) + begin;
    A* v = target(values, dtype_of<T>, 1, buffer);
    if constexpr (!std::is_same_v<A, T>) convert_run(v, values, end - begin);
    for (int64_t i = 0; i < end - begin; ++i) v[i] *= factor;
    store(values, dtype_of<T>, end - begin, 1, v);
  });
  return Status::ok;
}

#define ANELLO_OPTIM_KERNELS(T)                                     \
  ANELLO_KERNEL(kSgd, sgd_kernel<T>, {dtype_of<T>});                \
  ANELLO_KERNEL(kAdam, adam_kernel<T>, {dtype_of<T>});              \
  ANELLO_KERNEL(kLerp, lerp_kernel<T>, {dtype_of<T>});              \
  ANELLO_KERNEL(kSumSquares, sum_squares_kernel<T>, {dtype_of<T>}); \
  ANELLO_KERNEL(kScale, scale_kernel<T>, {dtype_of<T>});
ANELLO_OPTIM_KERNELS(Float16)
ANELLO_OPTIM_KERNELS(BFloat16)
ANELLO_OPTIM_KERNELS(float)
ANELLO_OPTIM_KERNELS(double)

}  // namespace
}  // namespace anello::kernel
