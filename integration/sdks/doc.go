// Package sdks holds the recipes of docs/sdks.md and their tests: throttle under the SDKs that people use. It is a module
// of its own, outside the workspace, because of what a dozen SDKs need; .ci/run tests it.
//
// Each SDK has a file with its recipe, a function that the page quotes, and with a fake of its API. The fakes of GitHub,
// OpenAI, Anthropic, AWS, Slack, Stripe, Discord and Shopify enforce the limits that these APIs document, and advertise
// them as they do. The tests run in virtual time, hours of traffic in a second: the SDKs send through
// http.Client, whose Transport has the fake as its Base.
package sdks
