package sdks

// enforced are the SDKs whose fake enforces a limit, and others those that are made and used.
var (
	enforced = []api{gitHub, openAI, anthropicAPI, slackAPI, stripeAPI, discord, shopify, awsAPI}
	others   = []api{google, azure, elastic}
)
