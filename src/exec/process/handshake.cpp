#include "exec/process/handshake.hpp"

#include <random>

#include "autopar/sha256.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

constexpr std::string_view kMagic = "autopar ranks";
constexpr std::uint32_t kVersion = 2;  // of what goes over the connections of a run
constexpr std::size_t kNumberBytes = 16;
constexpr std::size_t kMostProcessBytes = 400;

std::string raw_sha256(std::string_view bytes) {
  const std::string hex = sha256_hex(bytes);
  std::string raw;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    raw += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return raw;
}

// HMAC-SHA256, RFC 2104.
std::string keyed_hash(const std::string& key, const std::string& text) {
  constexpr std::size_t kBlock = 64;
  std::string inner = key.size() > kBlock ? raw_sha256(key) : key;
  inner.resize(kBlock, '\0');
  std::string outer = inner;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return raw_sha256(outer + raw_sha256(inner + text));
}

std::string proof(const char* of, const std::string& secret, const Hello& hello,
                  const std::string& number_of_rank_0) {
  WireWriter writer;
  writer.put_text(of);
  writer.put_text(to_bytes(hello));
  writer.put_text(number_of_rank_0);
  return keyed_hash(secret, writer.take());
}

}  // namespace

std::string random_bytes(std::size_t count) {
  std::random_device device;
  std::string bytes;
  while (bytes.size() < count) {
    const auto word = device();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  bytes.resize(count);
  return bytes;
}

std::string to_bytes(const Hello& hello) {
  WireWriter writer;
  writer.put_text(kMagic);
  writer.put(kVersion);
  writer.put(hello.size);
  writer.put(hello.rank);
  writer.put_text(hello.process.substr(0, kMostProcessBytes));
  writer.put_text(hello.number);
  return writer.take();
}

Result<Hello> hello_of(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.view() != kMagic) return runtime_error("no hello of autopar");
  if (const auto version = reader.number<std::uint32_t>(); version != kVersion) {
    return runtime_error("this autopar speaks version " + std::to_string(kVersion) +
                         " with its other ranks, that one version " + std::to_string(version) +
                         ": start the same autopar everywhere");
  }
  Hello hello;
  hello.size = reader.number<std::int32_t>();
  hello.rank = reader.number<std::int32_t>();
  hello.process = reader.text();
  hello.number = reader.text();
  AUTOPAR_RETURN_IF_ERROR(reader.finish());
  if (hello.number.size() != kNumberBytes) return runtime_error("no hello of autopar");
  return hello;
}

std::string proof_of_rank_0(const std::string& secret, const Hello& hello,
                            const std::string& number_of_rank_0) {
  return proof("rank 0", secret, hello, number_of_rank_0);
}

std::string proof_of_rank(const std::string& secret, const Hello& hello,
                          const std::string& number_of_rank_0) {
  return proof("rank", secret, hello, number_of_rank_0);
}

}  // namespace autopar
