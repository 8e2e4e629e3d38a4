;; SPDX-License-Identifier: Apache-2.0
;;
;; Guile: threads of its pool, compiled code, big numbers.
(use-modules (ice-9 threads))
(define rounds (string->number (cadr (command-line))))
(define (chain x i sum)
  (if (= i 0) sum
      (chain (modulo (+ (* x 48271) i) 2147483647) (- i 1) (modulo (+ sum x (string-length (number->string x))) 1000003))))
(define (step-of k sum)
  (let loop ((round 0) (sum sum))
    (if (= round rounds) sum
        (let ((parts (par-map (lambda (j) (chain (+ (* 4 (+ (* k rounds) round)) j) 3000 0)) '(1 2 3 4))))
          (loop (+ round 1) (modulo (+ (* sum 7) (apply + parts)) 1000003))))))
(let loop ((k 0) (sum 0))
  (when (< k 20)
    (let ((sum (step-of k sum)))
      (display k) (display " ") (display sum) (newline) (force-output)
      (loop (+ k 1) sum))))
