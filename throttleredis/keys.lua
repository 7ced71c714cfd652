-- One request for one key that several servers share: the law that inbound.Memory describes, in microseconds of this
-- server's clock. The names are those of inbound/memory.go and inbound/law.go, step by step.
--
-- Numbers are doubles in binary, little end first, because to write them as text is most of the work otherwise.
--
-- KEYS[1]  a string: the shape, who took units last (8 characters; dashes: nobody), the account's moment and units, when
--          another server had taken some before, and the numbers of all laws
-- ARGV     the shape: how many laws there are, a byte, and for each its kind and how many numbers it has, a byte each;
--          the server, 8 characters;
--          numbers: forget, each, count, lease, used, back; three for each law (most, rate in units per nanosecond, per
--          in microseconds); if back is not 0 the moment of the mark and its numbers
-- returns  granted, leased, alone, now, and the numbers of all laws, in one string
local second = 1000000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local floor, max, min, byte, rep = math.floor, math.max, math.min, string.byte, string.rep
local shape, server = ARGV[1], ARGV[2]
local a = {struct.unpack('<' .. rep('d', #ARGV[3] / 8), ARGV[3])}
local forget, each, count, lease, used, back = a[1], a[2], a[3], a[4], a[5], a[6]

local laws, total = {}, 0
for i = 1, byte(shape, 1) do
	local l = {kind = byte(shape, 2 * i), n = byte(shape, 2 * i + 1), most = a[3 * i + 4], rate = a[3 * i + 5], per = a[3 * i + 6]}
	laws[i], total = l, total + l.n
end

-- numbers takes n numbers of a list. What another hand has written is taken for nothing.
local function numbers(list, at, n)
	local c = {}
	for i = 1, n do
		local x = list[at + i]
		if not x or not (x >= 0 and x < 9e15) then x = 0 end
		c[i] = x
	end
	return c
end

local function ceilDiv(x, y)
	if x <= 0 then return 0 end
	return floor((x - 1) / y) + 1
end

-- missing, open and turn are a bucket, a window and a sliding window at this moment.
local function missing(l, c)
	local m, gone = c[2], now - c[1]
	if gone > 0 then m = m - gone * 1000 * l.rate end
	return max(0, m)
end

local function open(l, c)
	if c[2] == 0 then return now, 0 end
	local ended = floor(max(0, now - c[1]) / l.per)
	if ended >= ceilDiv(c[2], l.most) then return now, 0 end
	return c[1] + ended * l.per, c[2] - ended * l.most
end

local function turn(l, c)
	local start, before, since = c[1], c[2], c[3]
	if before + since == 0 then return now, 0, 0 end
	local k = floor((now - start) / l.per)
	if k <= 0 then return start, before, since end
	if k > 1 and k - 1 > floor(since / l.most) then return now, 0, 0 end
	before, since = min(l.most, max(0, since - (k - 1) * l.most)), max(0, since - k * l.most)
	if before + since == 0 then return now, 0, 0 end
	return start + k * l.per, before, since
end

-- share is units * left / per, rounded up.
local function share(units, left, per)
	local x = units * left
	local q = floor(x / per)
	if q * per < x then q = q + 1 end
	return q
end

-- rest is how many units of a law are free.
local function rest(l, c)
	if l.kind == 0 then
		return max(0, floor(l.most - missing(l, c) + (1e-9 + 1e-12 * l.most + l.rate / 1024)))
	elseif l.kind == 1 then
		local _, u = open(l, c)
		return max(0, l.most - u)
	elseif l.kind == 2 then
		local start, before, since = turn(l, c)
		if before + since == 0 then return l.most end
		local left = min(l.per, max(0, start + l.per - now))
		return max(0, l.most - since - share(before, left, l.per))
	end
	local n = 0
	while n < l.most and c[n + 1] <= now do n = n + 1 end
	return n
end

-- use takes n units that fit, of a cost above what a law has as a debt.
local function use(l, c, n)
	if l.kind == 0 then
		local m = missing(l, c) + n
		c[1], c[2] = max(now, c[1]), m
	elseif l.kind == 1 then
		local start, u = open(l, c)
		c[1], c[2] = start, u + n
	elseif l.kind == 2 then
		local start, before, since = turn(l, c)
		c[1], c[2], c[3] = start, before, min(since + n, 4294967295)
	else
		local rounds, more = floor(n / l.most), n % l.most
		if rounds > 0 then
			for i = 1, l.most do c[i] = now + rounds * l.per end
		end
		for i = 1, more do c[i] = now + (rounds + 1) * l.per end
		table.sort(c)
	end
end

-- giveBack undoes a take of n units as far as they have not come back by themselves.
local function giveBack(l, c, mark, at, n)
	if l.kind == 0 then
		local m = max(0, missing(l, c) - min(n, missing(l, mark)))
		c[1], c[2] = max(now, c[1]), m
	elseif l.kind == 1 then
		local _, left = open(l, mark)
		local start, u = open(l, c)
		c[1], c[2] = start, max(0, u - min(n, left))
	elseif l.kind == 2 then
		local _, _, left = turn(l, mark)
		local start, before, since = turn(l, c)
		c[1], c[2], c[3] = start, before, max(0, since - min(n, left))
	else
		local rounds, more = floor(n / l.most), n % l.most
		local all = l.most - more
		for i = 1, l.most do
			local windows = floor((c[i] - at) / l.per)
			if c[i] == at + windows * l.per then
				if windows == rounds + 1 and more > 0 then
					c[i], more = at, more - 1
				elseif windows == rounds and rounds > 0 and all > 0 then
					c[i], all = at, all - 1
				end
			end
		end
		table.sort(c)
	end
end

-- over is when nothing is used any more.
local function over(l, c)
	if l.kind == 0 then return c[1] + c[2] / l.rate / 1000 end
	if l.kind == 1 then return c[1] + ceilDiv(c[2], l.most) * l.per end
	if l.kind == 2 then return c[1] + (1 + ceilDiv(c[3], l.most)) * l.per end
	return c[l.most]
end

-- the state: of other laws than before, what has the same place and shape stays
local at, lent, owner, other, cells = 0, 0, '--------', 0, {}
local text = forget == 0 and redis.call('GET', KEYS[1]) or ''
local from = 2 * (byte(text, 1) or 0) + 1
if #text >= from + 32 and (#text - from) % 8 == 0 then
	owner = string.sub(text, from + 1, from + 8)
	local list = {struct.unpack('<' .. rep('d', (#text - from) / 8 - 1), text, from + 9)}
	local head = numbers(list, 0, 3)
	at, lent, other = head[1], head[2], head[3]
	local place = 3
	for i, l in ipairs(laws) do
		local kind, n = byte(text, 2 * i, 2 * i + 1)
		if i > byte(text, 1) then n = nil end
		if kind == l.kind and n == l.n then cells[i] = numbers(list, place, n) end
		place = place + (n or 0)
	end
end
for i, l in ipairs(laws) do cells[i] = cells[i] or numbers({}, 0, l.n) end

-- heal: the clock went back
if at - now >= second then
	for i, l in ipairs(laws) do
		for k = 1, l.kind == 3 and l.n or 1 do cells[i][k] = max(0, cells[i][k] - (at - now)) end
	end
	at, other = now, min(other, now)
end

-- account: what is lent
if now - at > 2 * second then owner = '--------' end
local rate, burst = 1e300, 1e300
for _, l in ipairs(laws) do
	if l.kind == 0 then
		rate, burst = min(rate, l.rate / 5), min(burst, floor(l.most / 5))
	else
		rate, burst = min(rate, l.most / (l.per * 1000) / 10), min(burst, floor(l.most / 10))
	end
end
lent = max(0, lent - max(0, (now - at) * 1000) * rate - (used + back))
at = max(at, now)
if back > 0 then
	local place = 3 * #laws + 7
	for i, l in ipairs(laws) do
		giveBack(l, cells[i], numbers(a, place, l.n), a[3 * #laws + 7], back)
		place = place + l.n
	end
end

-- grant
local least, fits = 1e300, true
local function free()
	local n = 1e300
	for i, l in ipairs(laws) do
		local r = rest(l, cells[i])
		if min(each, l.most) > r then fits = false end
		least, n = min(least, l.most), min(n, r)
	end
	return n
end
local function take(n)
	if n > 0 then
		for i, l in ipairs(laws) do use(l, cells[i], n) end
	end
end
local granted, n = 0, free()
if each == 0 then
	granted = count
elseif each <= least then
	granted = min(count, floor(n / each))
elseif count > 0 and fits then
	granted = 1
end
take(granted * each)

-- alone
if count > 0 and server ~= owner then
	if owner ~= '--------' then other = now end
	owner = server
end
local alone = now - other > 2 * second

local leased = 0
if granted == count and lease > 0 then
	leased = max(0, min(lease, floor(free() / (alone and 4 or 16)), floor(burst - lent + 1e-9)))
	take(leased)
	lent = lent + leased
end

local expires, reply = now + lent / rate / 1000, {granted, leased, alone and 1 or 0, now}
for i, l in ipairs(laws) do
	expires = max(expires, over(l, cells[i]))
	for k = 1, l.n do reply[#reply + 1] = cells[i][k] end
end
local packed = struct.pack('<' .. rep('d', #reply), unpack(reply))
redis.call('SET', KEYS[1], shape .. owner .. struct.pack('<ddd', at, lent, other) .. string.sub(packed, 33),
	'PX', string.format('%.0f', min(floor((expires - now) / 1000) + 2001, 1e13)))
return packed
