package sdks

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// One Transport for all clients of one account and region. The signature of a request lives for five minutes, for 15 at S3,
// so no request may wait for longer: the SDK's retryer signs again.
func newAWSTransport() *throttle.Transport {
	return &throttle.Transport{
		Queue: throttle.QueueOptions{MaxWait: 4 * time.Minute},
		Retry: throttle.Retry{MaxAttempts: 1},
	}
}

func newAWS(throttled *http.Client, credentials aws.CredentialsProvider) *dynamodbstreams.Client {
	return dynamodbstreams.NewFromConfig(aws.Config{
		Region: "eu-central-1", Credentials: credentials, HTTPClient: throttled,
		RetryMaxAttempts: 8, // 3 are few for calls of many workers under a limit that nothing advertises
	})
}

var awsAPI = api{
	name:   "aws",
	stream: "{",
	// 10 calls a second; a refusal is a 400 that says so in its body.
	fake: func() fake {
		s := throttletest.NewServer(throttletest.Limit{N: 10})
		s.Identify, s.Advertise.Dialect = byBody, asJSON(nil)
		s.Latency, s.Status, s.Body = way, http.StatusBadRequest, `{"__type":"com.amazonaws#ThrottlingException","message":"Rate exceeded"}`
		s.Handler = answer(func(*http.Request) string { return `{"Streams":[]}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client := newAWS(throttled, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}, nil
		}))
		return func(ctx context.Context, i int) error {
			_, err := client.ListStreams(ctx, &dynamodbstreams.ListStreamsInput{TableName: aws.String(fmt.Sprint("call ", i))})
			return err
		}
	},
	calls: 1200, workers: 8, ideal: 119 * time.Second, slack: 1.3,
	transport: newAWSTransport, retries: true,
	silent: true,
}
