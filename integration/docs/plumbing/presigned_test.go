package plumbing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// unsigned is what is signed for a body that is not known.
const unsigned = "UNSIGNED-PAYLOAD"

var credentials = aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "made-up"}

// presign returns an address that serves object for as long as it says.
func presign(ctx context.Context, object string, valid time.Duration) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, object+"?X-Amz-Expires="+fmt.Sprint(int(valid.Seconds())), nil)
	if err != nil {
		return "", err
	}
	url, _, err := v4.NewSigner().PresignHTTP(ctx, credentials, req, unsigned, "s3", "eu-central-1", time.Now())
	return url, err
}

// fetch gets an address that was signed beforehand and is good for a time. The wait counts, so it must be over a little
// before. A retry would send the old signature again, so the caller signs anew instead.
func fetch(ctx context.Context, client *http.Client, url string, valid time.Duration) (*http.Response, error) {
	ctx = throttle.WithMaxAttempts(throttle.WithMaxWait(ctx, valid-10*time.Second), 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// A call whose signature would be too old when its turn comes fails at once. Error.Wait is the time after which to ask for
// a new address.
func Example_presigned() {
	limit := throttle.NewBucket(rate.Every(time.Hour), 1) // one at once, and one an hour
	client := &http.Client{Transport: &throttle.Transport{Base: &fake{}, Limiter: limit}}

	for range 2 {
		url, err := presign(context.Background(), "https://bucket.s3.eu-central-1.amazonaws.com/object", time.Minute)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := fetch(context.Background(), client, url, time.Minute)
		if err != nil {
			e := new(throttle.Error)
			fmt.Println("caller: too late:", errors.Is(err, throttle.ErrWaitTooLong), errors.As(err, &e) && e.Wait > time.Minute)
			continue
		}
		resp.Body.Close()
		fmt.Println("caller:", resp.StatusCode)
	}
	// Output:
	// upstream: GET bucket.s3.eu-central-1.amazonaws.com/object: 200
	// caller: 200
	// caller: too late: true true
}

// signing signs each request when it is sent.
type signing struct{ base http.RoundTripper }

func (s signing) RoundTrip(req *http.Request) (*http.Response, error) {
	signed := req.Clone(req.Context())
	err := v4.NewSigner().SignHTTP(req.Context(), credentials, signed, unsigned, "s3", "eu-central-1", time.Now())
	if err != nil {
		return nil, err
	}
	return s.base.RoundTrip(signed)
}

// Who has the credentials signs below the Transport: the wait is over then, and each attempt gets a signature of its own.
func Example_signedBelow() {
	upstream := &fake{refuse: 1}
	upstream.seen = func(req *http.Request) { fmt.Println("signed:", req.Header.Get("Authorization") != "") }
	client := &http.Client{Transport: &throttle.Transport{Base: signing{upstream}}}

	get(client, "https://bucket.s3.eu-central-1.amazonaws.com/object")
	// Output:
	// upstream: GET bucket.s3.eu-central-1.amazonaws.com/object: 429
	// signed: true
	// upstream: GET bucket.s3.eu-central-1.amazonaws.com/object: 200
	// signed: true
	// caller: 200
}
