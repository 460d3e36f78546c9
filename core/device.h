// Where a tensor lives: a kind of device and an index.
// Main entry: Device, device_from_name("cuda:1").
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace anello {

enum class DeviceType : uint8_t { cpu, cuda };
inline constexpr int kDeviceTypeCount = 2;

struct Device {
  DeviceType type = DeviceType::cpu;
  int16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};
inline constexpr Device cpu{};

/// "cpu" or "cuda".
std::string_view name(DeviceType type);
/// "cpu", "cuda:0".
std::string to_string(Device device);
std::ostream& operator<<(std::ostream& out, Device device);
/// Parses "cpu", "cuda", "cuda:1"; raises DeviceError on anything else. Does not ask whether the device exists.
Device device_from_name(std::string_view name);
/// Raises DeviceError, with what was looked for and where, unless kernels for this device are loaded.
void require_available(std::string_view op, Device device);

}  // namespace anello
