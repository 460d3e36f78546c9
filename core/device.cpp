// Names of devices.
// Main entry: device_from_name().
#include <anello/core/device.h>
#include <anello/core/error.h>

#include <charconv>
#include <ostream>

namespace anello {

std::string_view name(DeviceType type) { return type == DeviceType::cpu ? "cpu" : "cuda"; }

std::string to_string(Device device) {
  if (device.type == DeviceType::cpu) return "cpu";
  return concat(name(device.type), ':', device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

Device device_from_name(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  Device device;
  int index = 0;
  bool ok = kind == "cpu" || kind == "cuda";
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
    ok = ok && error == std::errc() && end == digits.end() && index >= 0 && index < 32768 &&
         (kind != "cpu" || index == 0);
  }
  check<DeviceError>(ok, "device", "'", text, "' is not a device. Hint: 'cpu', 'cuda' or 'cuda:1'.");
  device.type = kind == "cpu" ? DeviceType::cpu : DeviceType::cuda;
  device.index = static_cast<int16_t>(index);
  return device;
}

}  // namespace anello
