// Matrix products: matmul with broadcast batches, and the fully connected layer.
// Main entry: matmul(), linear() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/functions/product.h>
#include <anello/core/kernels/matmul.h>
#include <anello/core/registry.h>

#include <algorithm>

namespace anello {

namespace detail {

DType product_dtype(const char* op, const Tensor& a, const Tensor& b, const Tensor& bias) {
  DType dtype = promote_types(a.dtype(), b.dtype());
  for (const Tensor* t : {&a, &b, &bias}) {
    if (!t->defined()) continue;
    check<DTypeError>(is_floating_point(t->dtype()), op, "an operand is ", t->dtype(),
                      ". Hint: cast it to a float dtype.");
    check<DeviceError>(t->device() == a.device(), op, "operands are on ", a.device(), " and ", t->device(),
                       ". Hint: use to().");
    dtype = promote_types(dtype, t->dtype());
  }
  return dtype;
}

void give_bias(Backward& bw, int input, const Tensor& grad) {
  if (bw.create_graph()) {
    bw.give(input, sum_to_shape(grad, bw.input_shape(input)));
    return;
  }
  const Destination to = bw.destination(input);
  const int64_t columns = grad.shape().back(), rows = columns == 0 ? 0 : grad.numel() / columns;
  const Tensor dy = contiguous_data(grad);
  const Tensor out = to.tensor.defined() ? to.tensor : empty({columns}, grad.dtype(), grad.device());
  launch<kColumnSum>(
      grad.device(), grad.dtype(),
      {dy.raw_data(), out.raw_data(), grad.dtype(), rows, columns, to.tensor.defined() && to.accumulate});
  if (to.tensor.defined())
    bw.wrote(input);
  else
    bw.give(input, out);
}

}  // namespace detail

namespace {

/// The last two dims of a tensor as the kernel reads them; a copy when neither of them is contiguous.
struct Matrix {
  Tensor tensor;
  int64_t ld;
  bool transposed;

  explicit Matrix(const Tensor& t) : tensor(t) {
    if (fits()) return;
    tensor = contiguous_data(t);
    fits();
  }

 private:
  bool fits() {
    const int last = tensor.dim() - 1;
    const int64_t rows = tensor.shape()[last - 1], columns = tensor.shape()[last];
    const int64_t row_step = tensor.strides()[last - 1], column_step = tensor.strides()[last];
    transposed = !(columns <= 1 || column_step == 1);
    ld = transposed ? column_step : row_step;
    return !transposed || rows <= 1 || row_step == 1;
  }
};

/// out (+)= a b + bias over a batch; a [.., m, k] and b [.., k, n] of out's dtype, batch dims broadcast to out's. out
/// contiguous.
void multiply_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulate) {
  if (out.numel() == 0) return;
  const Matrix left(a), right(b);
  const int batch_dims = out.dim() - 2;
  const Shape& shape = out.shape();
  const auto batch_shape = [&](const Tensor& t) {
    Shape s(shape.begin(), shape.begin() + batch_dims);
    s.push_back(t.shape()[t.dim() - 2]);
    s.push_back(t.shape()[t.dim() - 1]);
    return s;
  };
  const Strides a_steps = expand_view(left.tensor, batch_shape(left.tensor)).strides();
  const Strides b_steps = expand_view(right.tensor, batch_shape(right.tensor)).strides();
  MatmulParams p{left.tensor.raw_data(),
                 right.tensor.raw_data(),
                 nullptr,
                 out.raw_data(),
                 out.dtype(),
                 shape[batch_dims],
                 shape[batch_dims + 1],
                 a.shape().back(),
                 1,
                 left.ld,
                 right.ld,
                 shape[batch_dims + 1],
                 0,
                 0,
                 shape[batch_dims] * shape[batch_dims + 1],
                 left.transposed,
                 right.transposed,
                 accumulate};
  const Tensor row = bias.defined() ? contiguous_data(bias) : bias;
  if (bias.defined()) p.bias = row.raw_data();
  // The last batch dims that step evenly in both operands go to the kernel at once.
  int inner = batch_dims;
  for (int i = batch_dims - 1; i >= 0; --i) {
    const bool even =
        p.batch == 1 || shape[i] == 1 || (a_steps[i] == p.step_a * p.batch && b_steps[i] == p.step_b * p.batch);
    if (!even) break;
    if (shape[i] > 1 && p.batch == 1) p.step_a = a_steps[i], p.step_b = b_steps[i];
    p.batch *= shape[i];
    inner = i;
  }
  const auto item = static_cast<int64_t>(item_size(out.dtype()));
  const auto *a_start = static_cast<const char*>(p.a), *b_start = static_cast<const char*>(p.b);
  auto* out_start = static_cast<char*>(p.out);
  int64_t outer = 1;
  for (int i = 0; i < inner; ++i) outer *= shape[i];
  for (int64_t flat = 0; flat < outer; ++flat) {
    int64_t a_offset = 0, b_offset = 0, rest = flat;
    for (int i = inner - 1; i >= 0; --i) {
      a_offset += rest % shape[i] * a_steps[i];
      b_offset += rest % shape[i] * b_steps[i];
      rest /= shape[i];
    }
    p.a = a_start + a_offset * item;
    p.b = b_start + b_offset * item;
    p.out = out_start + flat * p.batch * p.step_out * item;
    launch<kMatmul>(out.device(), out.dtype(), p);
  }
}

Tensor flipped(const Tensor& x) { return transpose(x, -1, -2); }

/// Gives a two-dim operand its gradient a b, into its destination when it has one.
void give_product(Backward& bw, int input, const Tensor& a, const Tensor& b) {
  const Destination to = a.dim() == 2 && b.dim() == 2 ? bw.destination(input) : Destination{};
  if (!to.tensor.defined()) {
    bw.give(input, matmul(a, b));
    return;
  }
  multiply_into(to.tensor, a, b, {}, to.accumulate);
  bw.wrote(input);
}

/// a [.., m, k] b [.., k, n] of one dtype, both of at least two dims.
Tensor product(const Tensor& a, const Tensor& b, const Shape& out_shape) {
  const Tensor out = empty(out_shape, a.dtype(), a.device());
  multiply_into(out, a, b, {}, false);
  const Tensor none, &kept_a = b.requires_grad() ? a : none, &kept_b = a.requires_grad() ? b : none;
  return record("matmul", {&a, &b}, {&kept_a, &kept_b}, out, [](Backward& bw) {
    if (bw.needs(0)) give_product(bw, 0, bw.grad(), flipped(bw.saved(1)));
    if (bw.needs(1)) give_product(bw, 1, flipped(bw.saved(0)), bw.grad());
  });
}

/// All dims but the last as one.
Tensor as_rows(const Tensor& x) {
  const int64_t columns = x.shape().back();
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  return reshape(x, {rows, columns});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const DType dtype = detail::product_dtype("matmul", a, b);
  check<ShapeError>(a.dim() >= 1 && b.dim() >= 1, "matmul", "a scalar has no rows: ", a.shape(), " @ ", b.shape(),
                    ". Hint: use *.");
  const int64_t inner = b.shape()[std::max(0, b.dim() - 2)];
  check<ShapeError>(a.shape().back() == inner, "matmul", "inner sizes differ: ", a.shape(), " @ ", b.shape(),
                    ". Hint: transpose the second argument.");
  const Tensor left = cast(a.dim() == 1 ? unsqueeze(a, 0) : a, dtype),
               right = cast(b.dim() == 1 ? unsqueeze(b, 1) : b, dtype);
  const Shape a_batch(left.shape().begin(), left.shape().end() - 2),
      b_batch(right.shape().begin(), right.shape().end() - 2);
  Shape shape = broadcast_shapes("matmul", a_batch, b_batch);
  Tensor out;
  if (right.dim() == 2 && left.dim() > 2) {  // one matrix for all: rows of the batch follow each other
    const Tensor rows = as_rows(left);
    out = product(rows, right, {rows.shape()[0], right.shape()[1]});
  } else {
    Shape full = shape;
    full.push_back(left.shape()[left.dim() - 2]);
    full.push_back(right.shape().back());
    out = product(left, right, full);
  }
  if (a.dim() > 1) shape.push_back(a.shape()[a.dim() - 2]);
  if (b.dim() > 1) shape.push_back(b.shape().back());
  return out.shape() == shape ? out : reshape(out, shape);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const DType dtype = detail::product_dtype("linear", x, weight, bias);
  check<ShapeError>(weight.dim() == 2, "linear", "the weight has shape ", weight.shape(), ", not [out, in].");
  check<ShapeError>(x.dim() >= 1 && x.shape().back() == weight.shape()[1], "linear", "the input ", x.shape(),
                    " does not end in the ", weight.shape()[1], " features that the weight ", weight.shape(),
                    " takes. Hint: flatten the input, or transpose the weight to [out, in].");
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.shape()[0]}, "linear", "the bias has shape ",
                    bias.defined() ? bias.shape() : Shape{}, ", the weight ", weight.shape(), " has ",
                    weight.shape()[0], " outputs.");
  const Tensor in = cast(x, dtype), w = cast(weight, dtype), b = bias.defined() ? cast(bias, dtype) : bias;
  Shape shape = x.shape();
  shape[x.dim() - 1] = w.shape()[0];
  const Tensor out = empty(shape, dtype, x.device());
  {
    const NoGradGuard no_grad;
    multiply_into(as_rows(out), as_rows(in), flipped(w), b, false);
  }
  const Tensor none, &kept_x = w.requires_grad() ? in : none, &kept_w = in.requires_grad() ? w : none;
  return record("linear", {&in, &w, &b}, {&kept_x, &kept_w}, out, [](Backward& bw) {
    const Tensor& dy = bw.grad();
    if (bw.needs(0)) bw.give(0, matmul(dy, bw.saved(1)));
    if (bw.needs(1)) give_product(bw, 1, flipped(as_rows(dy)), as_rows(bw.saved(0)));
    if (bw.needs(2)) detail::give_bias(bw, 2, dy);
  });
}

}  // namespace anello
