module github.com/fencelock/fencelock/clients/go

go 1.22
