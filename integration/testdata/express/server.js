// An upstream for the tests: express-rate-limit with its own store, in one of its dialects.
//
//   node server.js PORT draft-6|draft-7|draft-8|legacy LIMIT
//
// GET /api takes one of LIMIT units per window of one second; GET /ready takes none.
const express = require("express");
const { rateLimit } = require("express-rate-limit");

const [port, dialect, limit] = process.argv.slice(2);
const legacy = dialect === "legacy"; // X-RateLimit-*

const app = express();
app.get("/ready", (request, response) => response.send("ready"));
app.use(
  rateLimit({
    windowMs: 1000,
    limit: Number(limit),
    standardHeaders: legacy ? false : dialect,
    legacyHeaders: legacy,
  }),
);
app.get("/api", (request, response) => response.send("hello"));
app.listen(Number(port), "127.0.0.1", (error) => {
  if (error) throw error; // the port is taken
});
