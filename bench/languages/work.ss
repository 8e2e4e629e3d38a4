;; SPDX-License-Identifier: Apache-2.0
;;
;; Chez Scheme: compiled code and its collector.
(define rounds (string->number (cadr (command-line))))
(define (chain x i sum)
  (if (= i 0) sum
      (chain (modulo (+ (* x 48271) i) 2147483647) (- i 1) (modulo (+ sum x (string-length (number->string x))) 1000003))))
(let loop ((k 0) (sum 0))
  (when (< k 20)
    (let ((sum (chain (+ k 1) (* rounds 9000) sum)))
      (display k) (display " ") (display sum) (newline) (flush-output-port)
      (loop (+ k 1) sum))))
