// The nets of the CIFAR-10 example.
// Main entry: build_model().
#include "models.h"

#include <anello/core/suggest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace cifar10 {

namespace {
std::shared_ptr<nn::Conv2d> conv3x3(int64_t in, int64_t out, int64_t stride = 1) {
  return std::make_shared<nn::Conv2d>(in, out, 3, nn::Conv2dOptions{.stride = stride, .padding = 1, .bias = false});
}

/// Batch norm without a scale, with statistics that follow fast: running = 0.6 old + 0.4 new.
std::shared_ptr<nn::BatchNorm2d> airbench_norm(int64_t channels) {
  auto norm = std::make_shared<nn::BatchNorm2d>(channels, nn::BatchNormOptions{.eps = 1e-12, .momentum = 0.4});
  norm->weight.set_requires_grad(false);
  return norm;
}

/// A 3x3 convolution whose first `in` filters start as the identity.
std::shared_ptr<nn::Conv2d> airbench_conv(int64_t in, int64_t out) {
  auto conv = conv3x3(in, out);
  nn::init::dirac_(anello::slice(conv->weight.detach(), 0, 0, in));
  return conv;
}
}  // namespace

Block::Block(int64_t in, int64_t out, int64_t stride)
    : conv1(add("conv1", conv3x3(in, out, stride))),
      bn1(add<nn::BatchNorm2d>("bn1", out)),
      conv2(add("conv2", conv3x3(out, out))),
      bn2(add<nn::BatchNorm2d>("bn2", out)) {
  if (stride == 1 && in == out) return;
  shortcut = add<nn::Sequential>("shortcut");
  (*shortcut)->append<nn::Conv2d>(in, out, 1, nn::Conv2dOptions{.stride = stride, .bias = false});
  (*shortcut)->append<nn::BatchNorm2d>(out);
}

Tensor Block::forward(const Tensor& x) {
  const Tensor y = bn2(conv2(anello::relu(bn1(conv1(x)))));
  return anello::relu(y + (shortcut ? (*shortcut)(x) : x));
}

ResNet::ResNet(const std::vector<int64_t>& widths, int blocks, int64_t classes)
    : conv1(add("conv1", conv3x3(3, widths[0]))),
      bn1(add<nn::BatchNorm2d>("bn1", widths[0])),
      stages(add_stages(widths, blocks)),
      fc(add<nn::Linear>("fc", widths.back(), classes)) {}

std::vector<nn::Child<nn::Sequential>> ResNet::add_stages(const std::vector<int64_t>& widths, int blocks) {
  std::vector<nn::Child<nn::Sequential>> list;
  int64_t in = widths[0];
  for (size_t i = 0; i < widths.size(); ++i) {
    list.push_back(add<nn::Sequential>("layer" + std::to_string(i + 1)));
    for (int b = 0; b < blocks; ++b) {
      list.back()->append<Block>(in, widths[i], i > 0 && b == 0 ? 2 : 1);
      in = widths[i];
    }
  }
  return list;
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = anello::relu(bn1(conv1(x)));
  for (const auto& stage : stages) y = stage(y);
  return fc(anello::global_avg_pool2d(y));
}

Group::Group(int64_t in, int64_t out)
    : conv1(add("conv1", airbench_conv(in, out))),
      norm1(add("norm1", airbench_norm(out))),
      conv2(add("conv2", airbench_conv(out, out))),
      norm2(add("norm2", airbench_norm(out))) {}

Tensor Group::forward(const Tensor& x) {
  const Tensor y = anello::gelu(norm1(anello::max_pool2d(conv1(x), {2, 2})));
  return anello::gelu(norm2(conv2(y)));
}

Airbench::Airbench() {
  whiten->weight.set_requires_grad(false);
  nn::init::zeros_(whiten->bias);
  const anello::NoGradGuard no_grad;
  anello::mul_(head->weight, 1 / std::sqrt(anello::var(head->weight).item<double>()));
}

Tensor Airbench::forward(const Tensor& x) {
  const Tensor y = group3(group2(group1(anello::gelu(whiten(x)))));
  const Tensor features = anello::flatten(anello::max_pool2d(y, {3, 3}), 1);
  return head(features) / static_cast<double>(features.size(1));
}

namespace {
constexpr size_t kPatch = 12;  // 2 x 2 pixels of 3 channels, in the order of a weight's [kh, kw, c]
using Matrix = std::array<std::array<double, kPatch>, kPatch>;

/// Mean of the outer products of all 2x2 patches.
Matrix patch_covariance(const Tensor& images) {
  const int64_t n = images.size(0), height = images.size(1), width = images.size(2);
  const std::vector<float> pixels = images.to_vector<float>();
  Matrix sum{};
  std::array<double, kPatch> patch{};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t y = 0; y + 1 < height; ++y)
      for (int64_t x = 0; x + 1 < width; ++x) {
        for (int64_t row = 0; row < 2; ++row)
          std::copy_n(&pixels[static_cast<size_t>(((i * height + y + row) * width + x) * 3)], 6,
                      &patch[static_cast<size_t>(6 * row)]);
        for (size_t a = 0; a < kPatch; ++a)
          for (size_t b = 0; b <= a; ++b) sum[a][b] += patch[a] * patch[b];
      }
  const double count = static_cast<double>(n * (height - 1) * (width - 1));
  for (size_t a = 0; a < kPatch; ++a)
    for (size_t b = 0; b <= a; ++b) sum[a][b] = sum[b][a] = sum[a][b] / count;
  return sum;
}

/// Eigenvalues on the diagonal of `a` and eigenvectors in the columns of the result, by Jacobi's rotations.
Matrix diagonalize(Matrix& a) {
  Matrix vectors{};
  for (size_t i = 0; i < kPatch; ++i) vectors[i][i] = 1;
  for (int sweep = 0; sweep < 30; ++sweep)
    for (size_t p = 0; p < kPatch; ++p)
      for (size_t q = p + 1; q < kPatch; ++q) {
        if (std::abs(a[p][q]) < 1e-300) continue;
        const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
        const double c = 1 / std::hypot(t, 1.0), s = t * c;
        const auto rotate = [c, s](double& x, double& y) {
          const double before = x;
          x = c * before - s * y;
          y = s * before + c * y;
        };
        for (size_t k = 0; k < kPatch; ++k) rotate(a[k][p], a[k][q]);
        for (size_t k = 0; k < kPatch; ++k) rotate(a[p][k], a[q][k]);
        for (size_t k = 0; k < kPatch; ++k) rotate(vectors[k][p], vectors[k][q]);
      }
  return vectors;
}
}  // namespace

void Airbench::whiten_from(const Tensor& images) {
  Matrix a = patch_covariance(images);
  const Matrix vectors = diagonalize(a);
  std::array<size_t, kPatch> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return a[i][i] > a[j][j]; });
  std::vector<float> filters;
  for (double sign : {1.0, -1.0})
    for (size_t i : order)
      for (size_t k = 0; k < kPatch; ++k)
        filters.push_back(static_cast<float>(sign * vectors[k][i] / std::sqrt(a[i][i] + 5e-4)));
  anello::copy_into(whiten->weight, anello::from_vector(filters, whiten->weight.shape()));
}

const std::vector<std::string_view>& model_names() {
  static const std::vector<std::string_view> names = {"airbench", "resnet18", "resnet20"};
  return names;
}

std::shared_ptr<nn::Module> build_model(std::string_view name) {
  if (name == "airbench") return std::make_shared<Airbench>();
  if (name == "resnet18") return std::make_shared<ResNet>(std::vector<int64_t>{64, 128, 256, 512}, 2);
  if (name == "resnet20") return std::make_shared<ResNet>(std::vector<int64_t>{16, 32, 64}, 3);
  anello::fail<anello::ValueError>("train", "there is no model '", name, "'.", anello::suggest(name, model_names()));
}

}  // namespace cifar10
