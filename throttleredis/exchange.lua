-- One exchange of a member with a limit, or with several that are granted together: the law that fleet.Memory
-- describes, in microseconds of this server's clock. The names are those of fleet/law.go, step by step.
--
-- KEYS     a hash each. n: next, p: pause, s: seen, h: healed, l: limit, o: loaned, y: repaid, w: win, c: count,
--          q: before, and one field m:<id> for each member: seq, last, at, win, and the reply
-- ARGV     17 for each key, see arguments in redis.go; the last of them is the limit's name if this tells of a pause
-- returns  retry, pause, members, now, next, pause until, then for each run first, every (in nanoseconds), count;
--          of several keys a list of these
local second, forget = 1000000, 60000000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- up rounds up to a microsecond; a rounding error of the floats is not rounded up.
-- The 0 makes 0 of -0, which would be written with its sign.
local function up(us) return math.ceil(us - 1e-6) + 0 end
-- whole is a number as text, as Lua's own text of it has 14 digits.
local function whole(x) return string.format('%.0f', x) end

-- save writes everything, and lets no key live for ever.
local function save(s, reply)
	redis.call('HSET', s.key, 'n', whole(s.next), 'p', whole(s.pause), 's', whole(now), 'h', whole(s.healed),
		'l', s.text, 'o', whole(s.loaned), 'y', whole(s.repaid), 'w', whole(s.win), 'c', whole(s.count), 'q', whole(s.before),
		s.id, whole(s.mseq) .. ' ' .. whole(s.mlast) .. ' ' .. whole(now) .. ' ' .. whole(s.win) .. ' ' .. reply)
	local ms = (math.max(s.next, s.pause, now) - now + s.burst * 1e6 / s.limit + forget) / 1000
	redis.call('PEXPIRE', s.key, whole(math.min(ms, 1e12)))
end

-- look reads one limit and its member's record. It writes nothing: if it fails for one key, nothing has changed for
-- the others.
local function look(i)
	local s, a, from = {key = KEYS[i]}, {}, (i - 1) * 17
	for k = 2, 16 do a[k] = tonumber(ARGV[from + k]) end
	s.id, s.text, s.name = 'm:' .. ARGV[from + 1], ARGV[from + 3], ARGV[from + 17] or ''
	s.seq, s.limit, s.burst, s.validity, s.need, s.want, s.held = a[2], a[3], a[4], a[5], a[6], a[7], a[8]
	s.known, s.knownNext, s.knownPause = a[9], a[10], a[11]
	s.stop, s.tighten, s.notBefore, s.back, s.unused = a[12], a[13], a[14], a[15], a[16]
	s.far, s.every = math.floor(s.validity / 5) * 4, 1e6 / s.limit

	-- What another hand has written into the hash is taken for nothing.
	local read = redis.call('HMGET', s.key, 'n', 'p', 's', 'h', 'l', 'o', 'y', 'w', 'c', 'q', s.id)
	local v = {}
	for k = 1, 10 do
		local x = tonumber(read[k] or '')
		if not x or x ~= x or x > 9e15 or x < -9e15 then x = 0 end
		v[k] = x
	end
	s.next, s.pause, s.seen, s.healed, s.old, s.loaned, s.repaid = v[1], v[2], v[3], v[4], v[5], v[6], v[7]
	s.win, s.count, s.before = v[8], v[9], v[10]
	local mseq, mlast, _, mwin, mreply = string.match(read[11] or '', '^(%d+) (%-?%d+) (%d+) (%-?%d+) ([%-%d ]*)$')
	s.mseq, s.mlast, s.mwin, s.mreply = tonumber(mseq or 0), tonumber(mlast or -forget), tonumber(mwin or -1), mreply
	return s
end

-- heal: the clock went back, or the state is lost
local function heal(s)
	local back = s.seen - now
	if back > second then
		s.next, s.pause, s.repaid = s.next - back, s.pause - back, s.repaid - back
		s.healed = s.seen
	end
	if s.seen == 0 or s.known > s.seen then s.healed = math.max(s.healed, now, s.known) end
	if s.known ~= 0 and s.known <= s.healed then
		local ahead = s.known - now
		if ahead > second then s.knownNext, s.knownPause = s.knownNext - ahead, s.knownPause - ahead end
		s.next = math.max(s.next, math.min(s.knownNext, now + 600 * second))
		s.pause = math.max(s.pause, math.min(s.knownPause, now + 86400 * second))
	end
end

-- meet: how many members there are
local function meet(s)
	local w = math.floor(now / (2 * second))
	if w ~= s.win then
		s.before = (w == s.win + 1) and s.count or 0
		s.win, s.count = w, 0
		local all = redis.call('HGETALL', s.key)
		for i = 1, #all, 2 do
			if string.sub(all[i], 1, 2) == 'm:' and all[i] ~= s.id then
				local at = tonumber(string.match(all[i + 1], '^%d+ %-?%d+ (%d+) ') or '')
				if not at or now - at > forget then redis.call('HDEL', s.key, all[i]) end
			end
		end
	end
	if s.mwin ~= s.win then s.count = s.count + 1 end
	s.members = math.max(1, s.count, s.before)
end

-- repeated answers a request that was executed before.
local function repeated(s)
	local reply = {0, 0, s.members, now, s.next, s.pause}
	if s.seq == s.mseq then
		reply = {}
		for x in string.gmatch(s.mreply, '%-?%d+') do reply[#reply + 1] = tonumber(x) end
	end
	if s.old > 0 then s.text = string.format('%.17g', s.old) end
	save(s, s.mreply)
	return reply
end

-- learn
local function learn(s)
	if s.limit ~= s.old and s.old > 0 then s.next = now + up((s.next - now) * s.old / s.limit) end
	if s.unused > 0 and s.next == s.carried then s.next = s.next - math.floor(s.unused * s.every) end
	if s.back > 0 then s.next = s.next - math.floor(s.back * s.every) end
	if s.tighten > 0 then s.next = math.max(s.next, now + s.notBefore) end
	if s.stop > 0 then
		local ends = now + math.min(s.stop, 86400 * second)
		s.raised = ends > s.pause + 50000
		s.pause = math.max(s.pause, ends)
	end
end

-- begin finds when the units that are needed would be dated. rel is the date of the next unit, from now.
local function begin(i)
	local s = look(i)
	s.carried = s.knownNext
	heal(s)
	meet(s)
	s.again = s.mreply and s.seq <= s.mseq
	if s.again then return s end
	learn(s)
	s.rel = math.max(s.next, s.pause, now - math.floor((s.burst - 1) * s.every)) - now
	s.wait = 0
	if s.need > 0 then
		s.wait = math.max(0, s.rel + (math.min(s.need, s.burst) - 1) * s.every)
		local recent = now - s.validity
		if s.wait > 0 and s.pause <= recent and s.mlast <= recent then
			if now >= s.repaid then s.loaned = 0 end
			if s.loaned + s.need <= math.max(1, math.floor(s.far / 1e6 * s.limit / 10)) then s.lent, s.wait = true, 0 end
		end
	end
	return s
end

-- grant gives what is needed and wanted its dates. latest is when the last of the limits that are granted together has
-- what is needed.
local function grant(s, latest)
	if s.again then return repeated(s) end
	local runs, retry, more, rel, every = {}, 0, true, s.rel, s.every
	local function add(first, each, n)
		runs[#runs + 1], runs[#runs + 2], runs[#runs + 3] = up(first), math.ceil(each * 1000), n
		s.mlast = math.max(s.mlast, now + up(first + (n - 1) * each))
	end
	if s.wait < latest - s.far then
		more = false -- it would expire before the others have theirs
	elseif s.need > 0 then
		if s.wait > 30 * second then
			retry, more = math.floor(s.wait - 15 * second), false
		else
			rel = rel + s.need * every
			if s.lent then s.loaned, s.repaid = s.loaned + s.need, now + up(rel) end
			add(s.wait, 0, s.need)
		end
	end
	if more then
		local n = math.min(s.want, math.max(1, math.floor(s.far / every / s.members)) - s.held - s.need)
		if n > 0 and rel <= 0 then
			local k = math.min(n, math.floor(math.min(-rel / every + 1e-9, 1073741824)) + 1)
			add(0, 0, k)
			rel, n = rel + k * every, n - k
		end
		if n > 0 and rel > 0 and rel <= s.far then
			local k = math.min(n, math.floor((s.far - rel) / every) + 1)
			add(rel, every, k)
			rel = rel + k * every
		end
	end
	if #runs > 0 then s.next = now + up(rel) end

	local reply = {retry, math.max(0, s.pause - now), s.members, now, s.next, s.pause}
	for i = 1, #runs do reply[6 + i] = runs[i] end
	local text = {}
	for i = 1, #reply do text[i] = whole(reply[i]) end
	s.mseq = s.seq
	save(s, table.concat(text, ' '))
	-- A message only makes it quicker, so it may fail: the user of an ACL may not be allowed to publish.
	if s.raised then
		redis.pcall('PUBLISH', 'throttle:pauses', whole(s.pause) .. ' ' .. whole(s.pause - now) .. ' ' .. s.name)
	end
	return reply
end

local all, latest, replies = {}, 0, {}
for i = 1, #KEYS do
	all[i] = begin(i)
	if not all[i].again then latest = math.max(latest, all[i].wait) end
end
for i = 1, #KEYS do replies[i] = grant(all[i], latest) end
if #KEYS == 1 then return replies[1] end
return replies
