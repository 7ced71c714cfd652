-- One exchange of a member with a limit: the law that fleet.Memory describes, in microseconds of this server's
-- clock. The names are those of fleet/law.go, step by step.
--
-- KEYS[1]  a hash. n: next, p: pause, s: seen, h: healed, l: limit, o: loaned, y: repaid, w: win, c: count, q: before,
--          and one field m:<id> for each member: seq, last, at, win, and the reply
-- ARGV     see Store.arguments; the last one is the limit's name if this tells of a pause
-- returns  retry, pause, members, now, next, pause until, then for each run first, every (in nanoseconds), count
local key = KEYS[1]
local id = 'm:' .. ARGV[1]
local a = {}
for i = 2, 16 do a[i] = tonumber(ARGV[i]) end
local seq, limit, burst, validity, need, want, held = a[2], a[3], a[4], a[5], a[6], a[7], a[8]
local known, knownNext, knownPause = a[9], a[10], a[11]

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local second, forget = 1000000, 60000000
local far = math.floor(validity / 5) * 4

-- up rounds up to a microsecond; a rounding error of the floats is not rounded up.
-- The 0 makes 0 of -0, which would be written with its sign.
local function up(us) return math.ceil(us - 1e-6) + 0 end
-- whole is a number as text, as Lua's own text of it has 14 digits.
local function whole(x) return string.format('%.0f', x) end

-- What another hand has written into the hash is taken for nothing.
local read = redis.call('HMGET', key, 'n', 'p', 's', 'h', 'l', 'o', 'y', 'w', 'c', 'q', id)
local v = {}
for i = 1, 10 do
	local x = tonumber(read[i] or '')
	if not x or x ~= x or x > 9e15 or x < -9e15 then x = 0 end
	v[i] = x
end
local nxt, pause, seen, healed, oldLimit, loaned, repaid, win, count, before =
	v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]

-- heal: the clock went back, or the state is lost
local back = seen - now
if back > second then
	nxt, pause, repaid = nxt - back, pause - back, repaid - back
	healed = seen
end
if seen == 0 or known > seen then healed = math.max(healed, now, known) end
seen = now
if known ~= 0 and known <= healed then
	local ahead = known - now
	if ahead > second then knownNext, knownPause = knownNext - ahead, knownPause - ahead end
	nxt = math.max(nxt, math.min(knownNext, now + 600 * second))
	pause = math.max(pause, math.min(knownPause, now + 86400 * second))
end

-- meet: the member's record, and how many members there are
local w = math.floor(now / (2 * second))
if w ~= win then
	before = (w == win + 1) and count or 0
	win, count = w, 0
	local all = redis.call('HGETALL', key)
	for i = 1, #all, 2 do
		if string.sub(all[i], 1, 2) == 'm:' and all[i] ~= id then
			local at = tonumber(string.match(all[i + 1], '^%d+ %-?%d+ (%d+) ') or '')
			if not at or now - at > forget then redis.call('HDEL', key, all[i]) end
		end
	end
end
local mseq, mlast, mat, mwin, mreply = string.match(read[11] or '', '^(%d+) (%-?%d+) (%d+) (%-?%d+) ([%d ]*)$')
mseq, mlast, mwin = tonumber(mseq or 0), tonumber(mlast or -forget), tonumber(mwin or -1)
if mwin ~= win then
	mwin = win
	count = count + 1
end
local members = math.max(1, count, before)

-- save writes everything, and lets no key live for ever.
local function save(reply)
	redis.call('HSET', key, 'n', whole(nxt), 'p', whole(pause), 's', whole(seen), 'h', whole(healed),
		'l', ARGV[3], 'o', whole(loaned), 'y', whole(repaid), 'w', whole(win), 'c', whole(count), 'q', whole(before),
		id, whole(mseq) .. ' ' .. whole(mlast) .. ' ' .. whole(now) .. ' ' .. whole(mwin) .. ' ' .. reply)
	local ms = (math.max(nxt, pause, now) - now + burst * 1e6 / limit + forget) / 1000
	redis.call('PEXPIRE', key, whole(math.min(ms, 1e12)))
end

if mreply and seq <= mseq then
	local reply = {0, 0, members, now, nxt, pause}
	if seq == mseq then
		reply = {}
		for x in string.gmatch(mreply, '%d+') do reply[#reply + 1] = tonumber(x) end
	end
	ARGV[3] = oldLimit > 0 and string.format('%.17g', oldLimit) or ARGV[3]
	save(mreply)
	return reply
end

-- learn
if limit ~= oldLimit and oldLimit > 0 then nxt = now + up((nxt - now) * oldLimit / limit) end
local every = 1e6 / limit
if a[16] > 0 and nxt == a[10] then nxt = nxt - math.floor(a[16] * every) end
if a[15] > 0 then nxt = nxt - math.floor(a[15] * every) end
if a[13] > 0 then nxt = math.max(nxt, now + a[14]) end
local raised = false
if a[12] > 0 then
	local ends = now + math.min(a[12], 86400 * second)
	raised = ends > pause + 50000
	pause = math.max(pause, ends)
end

-- grant: rel is the date of the next unit, from now
local rel = math.max(nxt, pause, now - math.floor((burst - 1) * every)) - now
local runs, retry = {}, 0
local function add(first, each, n)
	runs[#runs + 1], runs[#runs + 2], runs[#runs + 3] = up(first), math.ceil(each * 1000), n
	mlast = math.max(mlast, now + up(first + (n - 1) * each))
end

local more = true
if need > 0 then
	local wait = math.max(0, rel + (math.min(need, burst) - 1) * every)
	local lent, recent = false, now - validity
	if wait > 0 and pause <= recent and mlast <= recent then
		if now >= repaid then loaned = 0 end
		if loaned + need <= math.max(1, math.floor(far / 1e6 * limit / 10)) then
			loaned, lent, wait = loaned + need, true, 0
		end
	end
	if wait > 30 * second then
		retry, more = math.floor(wait - 15 * second), false
	else
		rel = rel + need * every
		if lent then repaid = now + up(rel) end
		add(wait, 0, need)
	end
end
if more then
	local n = math.min(want, math.max(1, math.floor(far / every / members)) - held - need)
	if n > 0 and rel <= 0 then
		local k = math.min(n, math.floor(math.min(-rel / every + 1e-9, 1073741824)) + 1)
		add(0, 0, k)
		rel, n = rel + k * every, n - k
	end
	if n > 0 and rel > 0 and rel <= far then
		local k = math.min(n, math.floor((far - rel) / every) + 1)
		add(rel, every, k)
		rel = rel + k * every
	end
end
if #runs > 0 then nxt = now + up(rel) end

local reply = {retry, math.max(0, pause - now), members, now, nxt, pause}
for i = 1, #runs do reply[6 + i] = runs[i] end
local text = {}
for i = 1, #reply do text[i] = whole(reply[i]) end
mseq = seq
save(table.concat(text, ' '))
-- A message only makes it quicker, so it may fail: the user of an ACL may not be allowed to publish.
if raised then
	redis.pcall('PUBLISH', 'throttle:pauses', whole(pause) .. ' ' .. whole(pause - now) .. ' ' .. (ARGV[17] or ''))
end
return reply
