// The nets of the CIFAR-10 example: resnet20, resnet18 (the CIFAR variants) and airbench. Images are [n, 32, 32, 3].
// Main entry: build_model(name), model_names(). The same nets, with the same names in their state, as models.py.
#pragma once

#include <anello/anello.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cifar10 {

namespace nn = anello::nn;
using anello::Tensor;

/// Two 3x3 convolutions and a shortcut, which projects where the shape changes.
struct Block : nn::Module {
  Block(int64_t in, int64_t out, int64_t stride);
  Tensor forward(const Tensor& x) override;
  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  nn::Child<nn::Conv2d> conv2;
  nn::Child<nn::BatchNorm2d> bn2;
  std::optional<nn::Child<nn::Sequential>> shortcut;  ///< where the shape changes
};

/// A residual net for 32x32 images (arXiv 1512.03385, section 4.2, with projection shortcuts): [n, 32, 32, 3] to logits
/// [n, classes]. `widths`: channels of each stage; `blocks`: blocks a stage.
struct ResNet : nn::Module {
  ResNet(const std::vector<int64_t>& widths, int blocks, int64_t classes = 10);
  Tensor forward(const Tensor& x) override;
  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  std::vector<nn::Child<nn::Sequential>> stages;  ///< "layer1", "layer2", ...
  nn::Child<nn::Linear> fc;

 private:
  std::vector<nn::Child<nn::Sequential>> add_stages(const std::vector<int64_t>& widths, int blocks);
};

/// conv, max-pool 2, norm, GELU, conv, norm, GELU.
struct Group : nn::Module {
  Group(int64_t in, int64_t out);
  Tensor forward(const Tensor& x) override;
  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> norm1;
  nn::Child<nn::Conv2d> conv2;
  nn::Child<nn::BatchNorm2d> norm2;
};

/// The net of airbench94 (arXiv 2404.00498): a frozen whitening layer, three groups, a linear head.
struct Airbench : nn::Module {
  Airbench();
  Tensor forward(const Tensor& x) override;
  /// Sets the first layer to the eigenvectors of the 2x2-patch covariance of normalised images [n, h, w, 3], each
  /// divided by sqrt(eigenvalue + 5e-4), and their negatives.
  void whiten_from(const Tensor& images);
  nn::Child<nn::Conv2d> whiten = add<nn::Conv2d>("whiten", 3, 24, 2);
  nn::Child<Group> group1 = add<Group>("group1", 24, 64);
  nn::Child<Group> group2 = add<Group>("group2", 64, 256);
  nn::Child<Group> group3 = add<Group>("group3", 256, 256);
  nn::Child<nn::Linear> head = add<nn::Linear>("head", 256, 10, false);
};

/// "airbench", "resnet18", "resnet20".
const std::vector<std::string_view>& model_names();
/// Raises ValueError naming the nearest for another name.
std::shared_ptr<nn::Module> build_model(std::string_view name);

}  // namespace cifar10
