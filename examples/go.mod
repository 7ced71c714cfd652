module github.com/go-throttle/throttle/examples

go 1.25.0

replace github.com/go-throttle/throttle => ../
