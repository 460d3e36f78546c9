// Anello inside a C++ program: trains a small net to tell three spirals apart, saves it, loads it into another,
// predicts. Main entry: main(). Writes spirals.safetensors into the current folder; exits with 1 when anything is not
// as it should.
#include <anello/anello.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <numbers>
#include <vector>

namespace nn = anello::nn;
using anello::Tensor;

namespace {
constexpr int kClasses = 3;
constexpr int kPerClass = 200;
constexpr int kSteps = 400;

/// Two layers of 32 and a head. A Child stands for a registered module: called like a function, saved by its name.
struct Net : nn::Module {
  nn::Child<nn::Linear> fc1 = add<nn::Linear>("fc1", 2, 32);
  nn::Child<nn::Linear> fc2 = add<nn::Linear>("fc2", 32, 32);
  nn::Child<nn::Linear> head = add<nn::Linear>("head", 32, kClasses);
  Tensor forward(const Tensor& x) override { return head(anello::silu(fc2(anello::silu(fc1(x))))); }
};

struct Points {
  Tensor x;       // [n, 2]
  Tensor labels;  // [n]
};

/// Arms that wind around the origin, one a class, a third of a turn apart, with a little noise.
Points spirals() {
  std::vector<float> x;
  std::vector<int64_t> labels;
  const std::vector<float> noise = anello::randn({kClasses * kPerClass}).to_vector<float>();
  for (int c = 0; c < kClasses; ++c)
    for (int i = 0; i < kPerClass; ++i) {
      const double radius = 0.05 + 0.95 * i / kPerClass;
      const double angle = 5 * radius + 2 * std::numbers::pi * c / kClasses + 0.12 * noise[labels.size()];
      x.push_back(static_cast<float>(radius * std::cos(angle)));
      x.push_back(static_cast<float>(radius * std::sin(angle)));
      labels.push_back(c);
    }
  const auto n = static_cast<int64_t>(labels.size());
  return {anello::from_vector(x, {n, 2}), anello::from_vector(labels, {n})};
}

/// Share of points whose largest logit is their label's.
double accuracy(Net& net, const Points& points) {
  const anello::NoGradGuard no_grad;
  const Tensor right = anello::eq(anello::argmax(net(points.x), 1), points.labels);
  return anello::mean(anello::cast(right, anello::float32)).item<double>();
}

void train(Net& net, const Points& points) {
  anello::optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
  anello::optim::CosineAnnealingLR schedule(optimizer, kSteps);
  for (int step = 1; step <= kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = anello::cross_entropy(net(points.x), points.labels);
    loss.backward();
    optimizer.step();
    schedule.step();
    if (step % 100 == 0) std::printf("step %d  loss %.4f\n", step, loss.item<double>());
  }
}

int run() {
  anello::manual_seed(0);
  const Points points = spirals();
  Net net;
  std::printf("%s\n", net.repr().c_str());
  train(net, points);
  net.eval();
  const double right = accuracy(net, points);
  std::printf("accuracy %.1f %%\n", 100 * right);

  anello::save_safetensors("spirals.safetensors", net.state_dict(), {{"task", "three spirals"}});
  Net loaded;  // starts with other weights
  loaded.load_state_dict(anello::load_safetensors("spirals.safetensors").tensors);
  loaded.eval();

  const anello::NoGradGuard no_grad;
  const bool equal = net(points.x).to_vector<float>() == loaded(points.x).to_vector<float>();
  std::printf("the loaded net predicts %s\n", equal ? "the same, bit for bit" : "something else");
  return equal && right > 0.95 ? 0 : 1;
}
}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
