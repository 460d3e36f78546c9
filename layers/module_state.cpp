// What changes or shows the state of a whole tree of modules: mode, dtype and device, state dicts, and its text.
// Main entry: Module::load_state_dict(), Module::to(), Module::repr().
#include <anello/layers/module.h>

#include <ostream>
#include <unordered_set>

namespace anello::nn {

void Module::train(bool mode) {
  training_ = mode;
  for (const std::shared_ptr<Module>& child : children()) child->train(mode);
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters()) parameter.zero_grad();
}

Module& Module::requires_grad_(bool requires_grad) {
  for (const Tensor& parameter : parameters()) parameter.set_requires_grad(requires_grad);
  return *this;
}

int64_t Module::num_parameters(bool trainable_only) const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters())
    if (!trainable_only || parameter.requires_grad()) count += parameter.numel();
  return count;
}

// The handle's impl takes over other memory: whoever holds the tensor (an optimizer, a tied layer) holds the new one.
void Module::convert(const std::function<Tensor(const Tensor&)>& f) {
  std::vector<Tensor> tensors = parameters();
  for (const Tensor& buffer : buffers()) tensors.push_back(buffer);
  std::vector<Tensor> converted;  // all first: a failure half way changes nothing
  for (const Tensor& tensor : tensors) converted.push_back(f(tensor));
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!converted[i].is(tensors[i])) tensors[i].set_data(converted[i]);
}

Module& Module::to(DType dtype) {
  check<DTypeError>(is_floating_point(dtype), class_name() + ".to", "a module is converted to a float type, not to ",
                    dtype);
  convert(
      [dtype](const Tensor& x) { return x.dtype() == dtype || !is_floating_point(x.dtype()) ? x : copy_as(x, dtype); });
  return *this;
}

Module& Module::to(Device device) {
  require_available(class_name() + ".to", device);
  convert([device](const Tensor& x) { return x.device() == device ? x : copy_to_device(x, device); });
  return *this;
}

TensorMap Module::state_dict() const {
  TensorMap state;
  collect_state("", state);
  return state;
}

void Module::collect_state(const std::string& prefix, TensorMap& state) const {
  for (const TensorSlot& slot : parameters_)
    if (slot.tensor->defined()) state.set(prefix + slot.name, slot.tensor->detach());
  for (const TensorSlot& slot : buffers_)
    if (slot.tensor->defined() && slot.persistent) state.set(prefix + slot.name, slot.tensor->detach());
  for (const auto& slot : modules_) slot->module->collect_state(prefix + slot->name + '.', state);
}

namespace {
std::string list(const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = concat("\n  ", title, " (", names.size(), "):");
  for (const std::string& name : names) text += (&name == &names.front() ? " " : ", ") + name;
  return text;
}
}  // namespace

LoadReport Module::load_state_dict(const TensorMap& state, bool strict) {
  const TensorMap own = state_dict();
  LoadReport report;
  std::vector<std::string> misfits;
  for (const auto& [name, tensor] : own) {
    const Tensor* given = state.find(name);
    if (given == nullptr || !given->defined()) {
      report.missing.push_back(name);
    } else if (given->shape() != tensor.shape()) {
      misfits.push_back(concat(name, " ", given->shape(), " for ", tensor.shape()));
    } else if (is_floating_point(given->dtype()) != is_floating_point(tensor.dtype())) {
      misfits.push_back(concat(name, " ", given->dtype(), " for ", tensor.dtype()));
    }
  }
  for (const auto& [name, tensor] : state)
    if (!own.contains(name)) report.unexpected.push_back(name);
  const bool names_fit = report.missing.empty() && report.unexpected.empty();
  if (!misfits.empty() || (strict && !names_fit)) {
    const std::string text = concat("the state does not fit, nothing was loaded:", list("missing", report.missing),
                                    list("unexpected", report.unexpected), list("given for expected", misfits),
                                    "\nHint: build the module with the options it was saved with",
                                    misfits.empty() ? ", or pass strict=False to load what fits." : ".");
    if (misfits.empty()) fail<ValueError>(class_name() + ".load_state_dict", text);
    fail<ShapeError>(class_name() + ".load_state_dict", text);
  }
  for (const auto& [name, tensor] : own)
    if (const Tensor* given = state.find(name); given != nullptr && given->defined())
      copy_into(tensor, copy_to_device(*given, tensor.device()));
  return report;
}

// --- Text ---

std::string Module::class_name() const { return detail::short_type_name(typeid(*this)); }

namespace {
std::string with_commas(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}
}  // namespace

std::string Module::tree(const std::string& indent) const {
  const int64_t count = num_parameters();
  const std::string note = count == 0 ? "" : concat("  [", with_commas(count), "]");
  const std::string own = extra_repr();
  std::string text = class_name() + "(" + own;
  if (modules_.empty()) return text + ")" + note;
  const std::string deeper = indent + "  ";
  for (const auto& slot : modules_) text += concat("\n", deeper, "(", slot->name, "): ", slot->module->tree(deeper));
  return text + "\n" + indent + ")" + note;
}

std::string Module::repr() const {
  const int64_t all = num_parameters(), trainable = num_parameters(true);
  if (all == 0) return tree("");
  return concat(tree(""), "\nParameters: ", with_commas(all),
                trainable == all ? "" : concat(", of which trainable ", with_commas(trainable)));
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.repr(); }

}  // namespace anello::nn
