-- Wireshark and tshark dissector of the Farverbs far transport (docs/far-transport.md): RoCEv2's BTH
-- with the manufacturer opcodes 0xC0 to 0xEF. Everything else on the port goes to Wireshark's own
-- InfiniBand dissector, as before.
--
--   tshark -X lua_script:farverbs.lua -r capture.pcap
--   or copy the file into the folder that Help > About > Folders calls "Personal Lua Plugins"
--
-- Filters: farverbs, farverbs.opcode == 0xca, farverbs.ack.missing > 0, farverbs.icrc.bad ...

local farverbs = Proto("farverbs", "Farverbs far transport")

local PORT = 4791
local BTH, BASE, ICRC = 12, 8, 4
local OFFERED = 0x2d -- in the BTH's reserved bits: the sender speaks the far transport

farverbs.prefs.check_icrc = Pref.bool("Check the ICRC", true, "CRC-32 over the packet")

local OPCODES = {
  [0xc0] = "WRITE",
  [0xc1] = "WRITE_IMM",
  [0xc2] = "SEND",
  [0xc3] = "SEND_IMM",
  [0xc4] = "SEND_INVALIDATE",
  [0xc5] = "READ_REQUEST",
  [0xc6] = "READ_RESPONSE",
  [0xc7] = "COMPARE_SWAP",
  [0xc8] = "FETCH_ADD",
  [0xc9] = "ATOMIC_RESPONSE",
  [0xca] = "ACK",
  [0xcb] = "PROBE",
  [0xcc] = "PATH_CHALLENGE",
  [0xcd] = "PATH_RESPONSE",
  [0xce] = "REPAIR",
}
for opcode = 0xe0, 0xee do
  OPCODES[opcode] = "sealed " .. OPCODES[opcode - 0x20]
end
local ACK = 0xca
-- Packets about the path have no number.
local NUMBERLESS = { [0xcc] = true, [0xcd] = true }

local STATUS = { [0] = "ok", [1] = "not ready", [2] = "refused" }
local NAK = {
  [0] = "PSN sequence error",
  [1] = "invalid request",
  [2] = "remote access error",
  [3] = "remote operational error",
  [4] = "invalid RD request",
}

-- Fields, in the order of the packet.
local f = {}
local function field(name, make, title, ...)
  f[name] = make("farverbs." .. name, title, ...)
end
field("opcode", ProtoField.uint8, "Opcode", base.HEX, OPCODES)
field("solicited", ProtoField.bool, "Solicited event", 8, nil, 0x80)
field("pad", ProtoField.uint8, "Pad count", base.DEC, nil, 0x30)
field("pkey", ProtoField.uint16, "Partition key", base.HEX)
field("fecn", ProtoField.bool, "FECN", 8, nil, 0x80)
field("becn", ProtoField.bool, "BECN", 8, nil, 0x40)
field("qp", ProtoField.uint24, "Destination QP", base.HEX)
field("ackreq", ProtoField.bool, "Acknowledge at once", 8, nil, 0x80)
field("psn", ProtoField.uint24, "Packet number, low 24 bits", base.HEX)
field("number", ProtoField.uint64, "Packet number (40 bits)")
field("last", ProtoField.bool, "Last of its message", 8, nil, 0x80)
field("repairable", ProtoField.bool, "In a block of error correction", 8, nil, 0x40)
field("side_port", ProtoField.bool, "From a side port", 8, nil, 0x20)
field("ack_ratio", ProtoField.uint8, "Packets for an acknowledgement, as a power of 2", base.DEC, nil,
  0xf0)
field("ack_delay", ProtoField.uint8, "Delay of an acknowledgement, 16 us x 2^n", base.DEC, nil, 0x0f)
field("message", ProtoField.uint32, "Message")
field("carried_out", ProtoField.uint32, "Messages carried out")
field("place.address", ProtoField.uint64, "Address", base.HEX)
field("place.rkey", ProtoField.uint32, "R_Key", base.HEX)
field("offset", ProtoField.uint32, "Offset in the message")
field("receive", ProtoField.uint32, "Receive")
field("imm", ProtoField.uint32, "Immediate data", base.HEX)
field("invalidate", ProtoField.uint32, "R_Key to invalidate", base.HEX)
field("length", ProtoField.uint32, "DMA length")
field("swap_add", ProtoField.uint64, "Swap or add", base.HEX)
field("compare", ProtoField.uint64, "Compare", base.HEX)
field("original", ProtoField.uint64, "Value before", base.HEX)
field("token", ProtoField.uint64, "Token", base.HEX)
field("ack.status", ProtoField.uint8, "Status", base.DEC, STATUS)
field("ack.detail", ProtoField.uint8, "Detail")
field("ack.has_limit", ProtoField.bool, "Receive limit is valid", 8, nil, 0x80)
field("ack.restores", ProtoField.bool, "Restores packets from repairs", 8, nil, 0x40)
field("ack.restored", ProtoField.uint8, "Packets restored so far, modulo 64", base.DEC, nil, 0x3f)
field("ack.ranges", ProtoField.uint8, "Ranges")
field("ack.limit", ProtoField.uint32, "Receive limit")
field("ack.delay", ProtoField.uint32, "Delay, us")
field("ack.time", ProtoField.uint32, "Arrival time at the receiver, us")
field("ack.marks", ProtoField.uint32, "Packets with ECN CE")
field("ack.first", ProtoField.uint32, "First range")
field("ack.range", ProtoField.string, "Range")
field("ack.missing", ProtoField.uint32, "Packets missing")
field("repair.first", ProtoField.uint32, "Block's first packet, low 32 bits", base.HEX)
field("repair.count", ProtoField.uint8, "Packets in the block")
field("repair.index", ProtoField.uint8, "Symbol")
field("repair.repairs", ProtoField.uint8, "Symbols of the block")
field("payload", ProtoField.bytes, "Payload")
field("payload_length", ProtoField.uint32, "Payload length")
field("icrc", ProtoField.uint32, "ICRC", base.HEX)
field("icrc.bad", ProtoField.bool, "ICRC is wrong")
field("offered", ProtoField.bool, "The sender speaks the far transport")
local fields = {}
for _, each in pairs(f) do
  fields[#fields + 1] = each
end
farverbs.fields = fields

local bad_icrc = ProtoExpert.new("farverbs.icrc.expert", "ICRC is wrong", expert.group.CHECKSUM,
  expert.severity.ERROR)
local malformed = ProtoExpert.new("farverbs.malformed", "Malformed packet", expert.group.MALFORMED,
  expert.severity.ERROR)
local refusal = ProtoExpert.new("farverbs.refused", "Message refused", expert.group.RESPONSE_CODE,
  expert.severity.WARN)
farverbs.experts = { bad_icrc, malformed, refusal }

local crc_table = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    crc = bit32.bxor(bit32.rshift(crc, 1), bit32.band(crc, 1) == 1 and 0xedb88320 or 0)
  end
  crc_table[byte] = crc
end

-- CRC-32 over 8 bytes of ones, the packet with BTH byte 4 as ones, up to the ICRC.
local function icrc_of(bytes)
  local crc = 0xffffffff
  local function add(byte)
    crc = bit32.bxor(bit32.rshift(crc, 8), crc_table[bit32.band(bit32.bxor(crc, byte), 0xff)])
  end
  for _ = 1, 8 do
    add(0xff)
  end
  for i = 0, bytes:len() - ICRC - 1 do
    add(i == 4 and 0xff or bytes:get_index(i))
  end
  return bit32.bxor(crc, 0xffffffff)
end

-- Each gives the header's length and words for the info column, or nothing if it is cut off.
local function place(tree, at)
  tree:add(f["place.address"], at(8))
  tree:add(f["place.rkey"], at(4))
  local offset = at(4)
  tree:add(f.offset, offset)
  return "offset=" .. offset:uint()
end
local function number_of(name, word)
  return function(tree, at)
    local range = at(4)
    tree:add(f[name], range)
    return word and word .. "=" .. range:uint() or nil
  end
end
local function wide(name)
  return function(tree, at)
    tree:add(f[name], at(8))
  end
end
local function reth(tree, at)
  tree:add(f["place.address"], at(8))
  tree:add(f["place.rkey"], at(4))
  local length = at(4)
  tree:add(f.length, length)
  return "length=" .. length:uint()
end
local function atomic(tree, at)
  tree:add(f["place.address"], at(8))
  tree:add(f["place.rkey"], at(4))
  tree:add(f.swap_add, at(8))
  tree:add(f.compare, at(8))
end
local function repair(tree, at)
  local first, count, index, repairs = at(4), at(1), at(1), at(1)
  at(1)
  tree:add(f["repair.first"], first)
  tree:add(f["repair.count"], count)
  tree:add(f["repair.index"], index)
  tree:add(f["repair.repairs"], repairs)
  return string.format("block=0x%08x+%d symbol=%d/%d", first:uint(), count:uint(), index:uint(),
    repairs:uint())
end

-- The ranges from the greatest number downward, as people read them. Counts above 65,535 take
-- several entries, in which a zero continues the field before.
local function ranges(tree, at, greatest, first, count)
  local spans, missing = {}, 0
  local high = greatest
  local low = greatest - first + 1
  for _ = 1, count do
    local gap, arrived = at(2), at(2)
    gap, arrived = gap:uint(), arrived:uint()
    missing = missing + gap
    if gap > 0 then
      spans[#spans + 1] = { low, high }
      high = low - gap - 1
      low = high + 1
    end
    low = low - arrived
  end
  spans[#spans + 1] = { low, high }
  for _, span in ipairs(spans) do
    if span[1] <= span[2] then
      tree:add(f["ack.range"], string.format("%.0f-%.0f", span[1], span[2])):set_generated()
    end
  end
  tree:add(f["ack.missing"], missing):set_generated()
  return missing
end

local function ack(tree, at, packet)
  local status, detail, flags, count = at(1), at(1), at(1), at(1)
  local told = tree:add(f["ack.status"], status)
  local why = tree:add(f["ack.detail"], detail)
  tree:add(f["ack.has_limit"], flags)
  tree:add(f["ack.restores"], flags)
  tree:add(f["ack.restored"], flags)
  tree:add(f["ack.ranges"], count)
  local limit, delay, time, marks, first = at(4), at(4), at(4), at(4), at(4)
  tree:add(f["ack.limit"], limit)
  tree:add(f["ack.delay"], delay)
  tree:add(f["ack.time"], time)
  tree:add(f["ack.marks"], marks)
  tree:add(f["ack.first"], first)
  local missing = ranges(tree, at, packet.number, first:uint(), count:uint())
  local words = STATUS[status:uint()] or "unknown status"
  if status:uint() == 2 then
    local code = NAK[detail:uint()] or "unknown code"
    why:append_text(" (" .. code .. ")")
    told:add_proto_expert_info(refusal, "message " .. packet.message .. " refused: " .. code)
    words = words .. ": " .. code
  end
  return string.format("%s missing=%d delay=%dus", words, missing, delay:uint())
end

local HEADERS = {
  [0xc0] = { place },
  [0xc1] = { place, number_of("receive", "receive"), number_of("imm") },
  [0xc2] = { number_of("receive", "receive"), number_of("offset", "offset") },
  [0xc3] = { number_of("receive", "receive"), number_of("offset", "offset"), number_of("imm") },
  [0xc4] = { number_of("receive", "receive"), number_of("offset", "offset"), number_of("invalidate") },
  [0xc5] = { reth },
  [0xc6] = { number_of("offset", "offset") },
  [0xc7] = { atomic },
  [0xc8] = { atomic },
  [0xc9] = { wide("original") },
  [0xca] = { ack },
  [0xcb] = {},
  [0xcc] = { wide("token") },
  [0xcd] = { wide("token") },
  [0xce] = { repair },
}

local function add_bth(tree, buffer)
  local bth = tree:add(buffer(0, BTH), "Base Transport Header")
  bth:add(f.opcode, buffer(0, 1))
  bth:add(f.solicited, buffer(1, 1))
  bth:add(f.pad, buffer(1, 1))
  bth:add(f.pkey, buffer(2, 2))
  bth:add(f.fecn, buffer(4, 1))
  bth:add(f.becn, buffer(4, 1))
  bth:add(f.qp, buffer(5, 3))
  bth:add(f.ackreq, buffer(8, 1))
  bth:add(f.psn, buffer(9, 3))
end

local function add_base(tree, buffer, packet)
  local base_tree = tree:add(buffer(BTH, BASE), "Far base header")
  local high, low = buffer(BTH, 2):uint(), buffer(9, 3):uint()
  packet.number = high * 0x1000000 + low
  packet.message = buffer(BTH + 4, 4):uint()
  if not NUMBERLESS[packet.opcode] then
    local wide_number = UInt64.new((high % 256) * 0x1000000 + low, math.floor(high / 256))
    base_tree:add(f.number, buffer(BTH, 2), wide_number)
  end
  base_tree:add(f.last, buffer(BTH + 2, 1))
  base_tree:add(f.repairable, buffer(BTH + 2, 1))
  base_tree:add(f.side_port, buffer(BTH + 2, 1))
  base_tree:add(f.ack_ratio, buffer(BTH + 3, 1))
  base_tree:add(f.ack_delay, buffer(BTH + 3, 1))
  base_tree:add(packet.opcode == ACK and f.carried_out or f.message, buffer(BTH + 4, 4))
end

local function add_icrc(tree, buffer)
  local range = buffer(buffer:len() - ICRC, ICRC)
  local item = tree:add_le(f.icrc, range)
  if not farverbs.prefs.check_icrc then
    return true
  end
  local right = icrc_of(buffer:bytes()) == range:le_uint()
  tree:add(f["icrc.bad"], range, not right):set_generated()
  if not right then
    item:add_proto_expert_info(bad_icrc)
  end
  return right
end

local function dissect_far(buffer, info, root)
  info.cols.protocol = "FARVERBS"
  local tree = root:add(farverbs, buffer())
  if buffer:len() < BTH + BASE + ICRC then
    tree:add_proto_expert_info(malformed, "shorter than its headers")
    info.cols.info = "FAR packet that is cut off"
    return
  end
  local packet = { opcode = buffer(0, 1):uint() }
  local name = OPCODES[packet.opcode] or "unknown"
  add_bth(tree, buffer)
  add_base(tree, buffer, packet)
  local text = string.format("FAR %s qp=0x%06x", name, buffer(5, 3):uint())
  if not NUMBERLESS[packet.opcode] then
    text = text .. string.format(" pn=%.0f", packet.number)
  end
  text = text .. (packet.opcode == ACK and " carried-out=" or " message=") .. packet.message

  local headers = HEADERS[packet.opcode]
  if headers == nil then
    -- Sealed: the rest is for who has the key.
    info.cols.info = text
    tree:append_text(", " .. name)
    return
  end
  local at, fits = BTH + BASE, true
  local function take(bytes)
    if at + bytes > buffer:len() - ICRC then
      fits = false
      error("cut off", 0)
    end
    at = at + bytes
    return buffer(at - bytes, bytes)
  end
  local shown = tree:add(buffer(BTH + BASE), name)
  local good, problem = pcall(function()
    for _, header in ipairs(headers) do
      local words = header(shown, take, packet)
      if words then
        text = text .. " " .. words
      end
    end
  end)
  if not good and fits then
    error(problem, 0) -- a mistake of this script
  end
  local pad = bit32.band(bit32.rshift(buffer(1, 1):uint(), 4), 3)
  local payload = buffer:len() - ICRC - pad - at
  if not fits or payload < 0 then
    tree:add_proto_expert_info(malformed, "shorter than its headers")
    text = text .. " [cut off]"
  else
    shown:set_len(math.max(at - BTH - BASE, 0))
    tree:add(f.payload_length, payload):set_generated()
    if payload > 0 then
      tree:add(f.payload, buffer(at, payload))
      text = text .. " len=" .. payload
    end
  end
  if bit32.band(buffer(BTH + 2, 1):uint(), 0x80) ~= 0 then
    text = text .. " last"
  end
  if bit32.band(buffer(8, 1):uint(), 0x80) ~= 0 then
    text = text .. " ackreq"
  end
  if not add_icrc(tree, buffer) then
    text = text .. " [wrong ICRC]"
  end
  tree:append_text(", " .. name)
  info.cols.info = text
end

local udp_ports = DissectorTable.get("udp.port")
local infiniband = udp_ports:get_dissector(PORT)

function farverbs.dissector(buffer, info, root)
  if buffer:len() >= BTH and buffer(0, 1):uint() >= 0xc0 and OPCODES[buffer(0, 1):uint()] then
    dissect_far(buffer, info, root)
    return buffer:len()
  end
  if buffer:len() >= BTH and bit32.band(buffer(4, 1):uint(), 0x3f) == OFFERED then
    root:add(farverbs, buffer(4, 1)):add(f.offered, buffer(4, 1), true)
  end
  if infiniband then
    infiniband:call(buffer, info, root)
  end
  return buffer:len()
end

udp_ports:set(PORT, farverbs)
