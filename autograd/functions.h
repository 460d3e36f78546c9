// Every public differentiable function, on one page. Integer and bool results (comparisons, argmax) carry no gradient.
// Main entry: this list. Each function checks its arguments once and raises ShapeError, DTypeError, ValueError or
// IndexError in the form "[op] what. Hint: ...". Unless a line says otherwise: operands broadcast as in NumPy, dtypes
// are promoted by promote_types(), 16-bit floats are computed in float32 and rounded once, empty tensors are fine.
#pragma once

#include <anello/core/tensor.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace anello {

// --- Elementwise, one operand (core/kernels/unary_ops.h). Integers become float32 where the result is not an integer.
// ---
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);   ///< gradient 0 at 0
Tensor sign(const Tensor& x);  ///< gradient 0
Tensor square(const Tensor& x);
Tensor floor(const Tensor& x);  ///< gradient 0
Tensor ceil(const Tensor& x);   ///< gradient 0
Tensor round(const Tensor& x);  ///< halves to even; gradient 0
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);  ///< NaN stays NaN; gradient 0 at 0
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1.0);
/// x * Phi(x), exact (erf); approximate "tanh" uses 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). arXiv 1606.08415.
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
Tensor silu(const Tensor& x);
Tensor softplus(const Tensor& x, double beta = 1.0);  ///< log(1 + exp(beta x)) / beta, without overflow
/// Limits to [min, max] (either may be infinite); NaN stays NaN; gradient 1 inside and at the bounds, else 0.
Tensor clamp(const Tensor& x, double min, double max);
Tensor pow(const Tensor& x, double exponent);
Tensor isnan(const Tensor& x);        ///< bool
Tensor isinf(const Tensor& x);        ///< bool
Tensor isfinite(const Tensor& x);     ///< bool: neither NaN nor infinite
Tensor logical_not(const Tensor& x);  ///< bool

// --- Elementwise, two operands ---
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);           ///< int / int is float32
Tensor floor_divide(const Tensor& a, const Tensor& b);  ///< gradient 0; integer by 0 raises ValueError
Tensor remainder(const Tensor& a, const Tensor& b);     ///< sign of b, as Python's %
Tensor pow(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< NaN wins; at a tie the gradient is shared half and half
Tensor minimum(const Tensor& a, const Tensor& b);
// With a weak number on one side: the tensor's dtype wins within a kind.
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor rsub(Scalar a, const Tensor& b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor rdiv(Scalar a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Scalar b);
Tensor remainder(const Tensor& a, Scalar b);
Tensor rpow(Scalar base, const Tensor& exponent);
Tensor maximum(const Tensor& a, Scalar b);
Tensor minimum(const Tensor& a, Scalar b);

// Comparisons and logic: bool, no gradient.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
/// condition ? a : b; condition is bool.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return rsub(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return rdiv(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }

// --- Reductions over `dims` (empty: all). 16-bit floats accumulate in float32; the order depends on the shape alone.
// ---
Tensor sum(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);  ///< integers and bool: int64
Tensor mean(const Tensor& x, const std::vector<int64_t>& dims = {},
            bool keepdim = false);  ///< integers: float32; of nothing: NaN
Tensor prod(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);
/// Divides by n - correction (two passes, no cancellation).
Tensor var(const Tensor& x, const std::vector<int64_t>& dims = {}, double correction = 1, bool keepdim = false);
/// The square root of var(); its gradient is 0 where all elements are equal.
Tensor stddev(const Tensor& x, const std::vector<int64_t>& dims = {}, double correction = 1, bool keepdim = false);
/// NaN wins; of nothing raises ShapeError; at ties the gradient is shared evenly.
Tensor max(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);
Tensor min(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);
Tensor argmax(const Tensor& x, int64_t dim,
              bool keepdim = false);  ///< int64, the first of equals; NaN counts as largest
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor any(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);  ///< bool
Tensor all(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);  ///< bool
/// log(sum(exp(x))) without overflow; all -inf gives -inf with gradient 0.
Tensor logsumexp(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false);
/// Euclidean norm; gradient 0 at 0.
Tensor norm(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);

// --- Shape: views where possible, else copies ---
Tensor reshape(const Tensor& x, const Shape& shape);  ///< one size may be -1
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const std::vector<int64_t>& dims);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
Tensor squeeze(const Tensor& x, int64_t dim);  ///< x itself unless that size is 1
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// x[..., start:stop:step, ...]; negative start and stop count from the end and are clipped as in Python; step > 0.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
Tensor select(const Tensor& x, int64_t dim, int64_t index);  ///< removes dim; IndexError outside
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);
Tensor cast(const Tensor& x, DType dtype);  ///< x itself when it already is
Tensor to(const Tensor& x, Device device);
Tensor flip(const Tensor& x, const std::vector<int64_t>& dims);
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, int64_t size,
                          int64_t dim = 0);  ///< views of `size`, the last may be smaller
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);

/// One place of a basic index: x[3], x[1:5:2], x[None], x[...].
struct Index {
  enum class Kind { integer, slice, new_dim, ellipsis } kind;
  int64_t start = 0, stop = 0, step = 1;
  bool has_start = true, has_stop = true;
  Index(int64_t i) : kind(Kind::integer), start(i) {}
  Index(int i) : Index(static_cast<int64_t>(i)) {}
  static Index slice(int64_t start, int64_t stop, int64_t step = 1);
  static Index all();
  static Index new_dim();
  static Index ellipsis();

 private:
  explicit Index(Kind k) : kind(k) {}
};
/// Basic indexing: a view.
Tensor index(const Tensor& x, const std::vector<Index>& indices);
/// x[indices] = value (broadcast), in place. Recorded like every function.
void index_set(const Tensor& x, const std::vector<Index>& indices, const Tensor& value);
/// out[i][j] = x[index[i][j]][j] for dim 0: `index` is integer, of x's dim count, no larger than x outside dim.
/// IndexError outside.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// zeros of `size` along dim plus every src element added where index says; the adjoint of gather. Deterministic.
Tensor scatter_add(const Tensor& src, int64_t dim, const Tensor& index, int64_t size);
/// Rows (along dim) by a 1-d integer index; negative indices count from the end.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// int64 labels to float rows; raises IndexError for a label outside [0, classes).
Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype = float32);
/// `padding` lists (before, after) from the last dim backward, as in PyTorch. mode "constant" (any dims; negative
/// crops), "reflect", "replicate" or "circular".
Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, std::string_view mode = "constant", double value = 0);

// --- In place. Recorded when a gradient is wanted: see apply_in_place() for what raises. dtype stays x's. ---
void add_(const Tensor& x, const Tensor& y, double alpha = 1);
void sub_(const Tensor& x, const Tensor& y);
void mul_(const Tensor& x, const Tensor& y);
void div_(const Tensor& x, const Tensor& y);
void add_(const Tensor& x, Scalar y);
void sub_(const Tensor& x, Scalar y);
void mul_(const Tensor& x, Scalar y);
void div_(const Tensor& x, Scalar y);
/// x becomes floor(x / y), x - y * floor(x / y), x^y.
void floor_divide_(const Tensor& x, const Tensor& y);
void remainder_(const Tensor& x, const Tensor& y);
void pow_(const Tensor& x, const Tensor& y);
void pow_(const Tensor& x, double exponent);
void copy_(const Tensor& x, const Tensor& src);
void fill_(const Tensor& x, Scalar value);
void zero_(const Tensor& x);

// --- Linear algebra ---
/// 1-d and 2-d as usual; more dims are batches that broadcast. float32 accumulation for 16-bit floats; floats only.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., in] times weight [out, in] transposed, plus bias [out] (may be undefined).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// --- Convolution and pooling, channels last ---
using Pair = std::array<int64_t, 2>;  ///< (height, width)
/// x [N, H, W, C], weight [O, kh, kw, C / groups], bias [O] or undefined -> [N, H', W', O],
/// H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair stride = {1, 1},
              Pair padding = {0, 0}, Pair dilation = {1, 1}, int64_t groups = 1);
/// The adjoint of conv2d in its input: grad [N, H', W', O] -> [N, H, W, C] of `input_shape`.
Tensor conv2d_input_grad(const Tensor& grad, const Tensor& weight, const Shape& input_shape, Pair stride = {1, 1},
                         Pair padding = {0, 0}, Pair dilation = {1, 1}, int64_t groups = 1);
/// The adjoint of conv2d in its weight: -> [O, kh, kw, C / groups] of `weight_shape`.
Tensor conv2d_weight_grad(const Tensor& grad, const Tensor& x, const Shape& weight_shape, Pair stride = {1, 1},
                          Pair padding = {0, 0}, Pair dilation = {1, 1}, int64_t groups = 1);
/// x [N, H, W, C]; stride {0, 0} means the kernel's; padding (at most kernel / 2) counts as -inf; NaN wins. ceil_mode
/// keeps the last partial window.
Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride = {0, 0}, Pair padding = {0, 0}, bool ceil_mode = false);
/// x [N, L, C].
Tensor max_pool1d(const Tensor& x, int64_t kernel, int64_t stride = 0, int64_t padding = 0, bool ceil_mode = false);
/// Mean over each window; padding counts as zeros in the mean when count_include_pad.
Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride = {0, 0}, Pair padding = {0, 0}, bool ceil_mode = false,
                  bool count_include_pad = true);
/// x [N, H, W, C] -> [N, C]: mean over all positions.
Tensor global_avg_pool2d(const Tensor& x);

// --- Normalisation, dropout ---
/// Normalises over all dims but the last (channels): x [..., C]. weight, bias [C] or undefined (scale 1, shift 0);
/// running statistics [C] (or undefined) are updated in training as running = (1 - momentum) running + momentum batch,
/// with the unbiased variance, and used in evaluation. Training with one value a channel raises ShapeError; an empty
/// batch leaves the statistics alone. Statistics are float32 (float64 for float64). arXiv 1502.03167.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum = 0.1, double eps = 1e-5);
/// Zeroes elements with probability p and scales the rest by 1 / (1 - p); the identity unless training. Keeps a seed,
/// not a mask.
Tensor dropout(const Tensor& x, double p, bool training = true);

// --- Softmax and losses ---
Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);
/// "none", "mean" or "sum"; another name raises ValueError with the nearest.
enum class Reduction { none, mean, sum };
Reduction reduction_from_name(std::string_view name);
struct CrossEntropyOptions {
  Tensor weight = {};  ///< [classes], or undefined
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
};
/// logits [N, classes], target [N] integers, or [N, classes] probabilities of a float dtype. Ignored rows count neither
/// in the sum nor in the mean; mean divides by the summed class weights of the counted rows; nothing counted gives 0
/// with gradient 0. A label outside [0, classes) raises IndexError that names it.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});
/// log_probs [N, classes], target [N].
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace anello
