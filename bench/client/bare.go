package client

// bare is http.Client and nothing else: what happens to an upstream, and to its callers, without any help.
func bare() Client {
	return Client{
		Name:   "http.Client",
		Bubble: true,
		Start:  func(job Job) (Doer, error) { return over(job.Base, job), nil },
	}
}
